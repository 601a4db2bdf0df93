"""A real dispatcher audits and tidies by itself, beside real work, and finds only what was planted."""

import psycopg

from tests.route.conftest import Route
from tests.stage import wait_until


def test_a_leading_dispatcher_repairs_a_planted_fault_beside_its_work_and_logs_it(route: Route) -> None:
    stage = route.stage
    assert stage.epoch is not None
    stage.connection.execute("UPDATE leader SET until = 'epoch'")
    (stranded,) = stage.submit("noop.single")
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("UPDATE task SET ready = false WHERE id = %s", (stranded,))
    route.environment = route.environment | {"HARNESS_AUDIT_EVERY_S": "1"}
    route.dispatcher()
    route.worker("db")
    stage.submit("noop.single", n=300)
    stage.submit("noop", n=2000)
    wait_until(lambda: route.count("succeeded") == 2301, within_s=60)
    assert stage.events(stranded) == ["submit", "ripen", "claim", "succeed"]
    found = stage.connection.execute("SELECT rule, subject, repaired_at IS NOT NULL FROM audit_finding").fetchall()
    assert found == [("stranded", f"task {stranded}", True)]
    assert '"audit_found"' in (route.folder / "0.log").read_text(encoding="utf-8")
