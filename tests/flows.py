"""What no dispatcher would see."""

from tests.stage import Stage


def orphans(stage: Stage) -> int:
    """Count the ready tasks that no flow leads to."""
    return int(
        stage.one(
            "SELECT count(*) FROM task t WHERE ready AND NOT EXISTS (SELECT FROM flow f WHERE f.pool = t.pool "
            "AND f.priority = t.priority AND f.tenant_id = t.tenant_id AND f.run_id = t.run_id "
            "AND f.signature = t.signature)"
        )
    )
