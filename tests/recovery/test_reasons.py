"""A dispatcher in a process of its own notes why flows wait; killed, the next one puts right what it left."""

import signal

from tests.recovery.conftest import Ward
from tests.stage import wait_until


def test_a_killed_dispatcher_leaves_no_reason_open_for_ever(ward: Ward) -> None:
    stage = ward.stage
    ward.submit("recovery.thread", {"i": 1})
    other = stage.add_tenant("other")
    ward.submit("recovery.thread", {"i": 2}, tenant=other)
    first = ward.dispatcher()
    wait_until(lambda: stage.one("SELECT count(*) FROM wait_reason WHERE until IS NULL") == 2, within_s=20)
    assert stage.one("SELECT array_agg(DISTINCT code) FROM wait_reason") == ["no_worker"]
    first.send_signal(signal.SIGKILL)
    first.wait()
    stage.connection.execute("UPDATE task SET ready = false WHERE tenant_id = %s", (other,))
    stage.connection.execute("DELETE FROM flow WHERE tenant_id = %s", (other,))
    second = ward.dispatcher()
    wait_until(
        lambda: stage.one("SELECT count(*) FROM wait_reason WHERE until IS NULL") == 1, within_s=20
    )  # the lead's TTL, then a look
    assert ward.leads(second)
    assert stage.one("SELECT tenant_id FROM wait_reason WHERE until IS NULL") == stage.tenant
    worker = ward.worker("tool_read")
    wait_until(lambda: stage.one("SELECT count(*) FROM wait_reason WHERE until IS NULL") == 0, within_s=20)
    assert worker.poll() is None
