"""Flows: no ready task is ever without one, whatever races."""

import threading
import uuid

from harness.engine import dispatch
from harness.store import flows, snapshot, transitions
from harness.store.transitions import NewTask
from tests.flows import orphans
from tests.stage import Stage


def test_a_flow_deleted_while_a_task_is_being_submitted_into_it_comes_back(stage: Stage) -> None:
    stage.submit()
    stage.connection.execute("UPDATE task SET ready = false")
    (flow,) = [known.flow.id for known in snapshot.in_use(stage.connection).flows]
    assert stage.epoch is not None
    with stage.open() as submitter, submitter.transaction():
        task = NewTask(
            kind="noop.single", version=1, pool="db", priority=2, signature="", input="{}", public_id=uuid.uuid4()
        )
        transitions.submit(submitter, [task], tenant=stage.tenant, actor="test")  # sees the flow, inserts none
        (key,) = flows.delete_empty(stage.connection, [flow], epoch=stage.epoch).values()
        assert key is not None
    assert orphans(stage) == 1
    assert flows.restore(stage.connection, [key]) == 1
    assert orphans(stage) == 0


def test_the_dispatcher_forgets_no_deleted_flow_before_every_transaction_is_over() -> None:
    from harness.store.database import IDLE_IN_TRANSACTION_S, STATEMENT_TIMEOUT_S

    longest_s = max(STATEMENT_TIMEOUT_S[role] + IDLE_IN_TRANSACTION_S[role] for role in STATEMENT_TIMEOUT_S)
    assert sum(dispatch.LOOK_AGAIN_S) > longest_s


def test_submitters_and_a_dispatcher_that_deletes_flows_lose_no_task(stage: Stage) -> None:
    session = stage.add_session()
    submitted: list[int] = []

    def submit() -> None:
        with stage.open() as connection:
            for _ in range(60):
                task = NewTask(
                    kind="noop.single",
                    version=1,
                    pool="db",
                    priority=2,
                    signature="",
                    input="{}",
                    public_id=uuid.uuid4(),
                )
                submitted.extend(transitions.submit(connection, [task], tenant=stage.tenant, actor="test"))

    threads = [threading.Thread(target=submit) for _ in range(3)]
    for thread in threads:
        thread.start()
    with stage.process(session) as process:
        while any(thread.is_alive() for thread in threads):
            stage.run_all(process)
        flows.scan(stage.connection)
        stage.run_all(process)
    assert len(submitted) == 180
    assert stage.one("SELECT count(*) FROM task WHERE state = 'succeeded'") == 180


def test_a_new_leader_finds_every_flow(stage: Stage) -> None:
    for tenant in range(5):
        stage.submit(n=3, tenant=stage.add_tenant(f"t{tenant}"))
        stage.submit(n=2, priority=0, tenant=stage.tenant)
    stage.connection.execute("DELETE FROM flow")
    assert orphans(stage) > 0
    assert stage.epoch is not None
    dispatch.begin(stage.connection, epoch=stage.epoch)
    assert orphans(stage) == 0
