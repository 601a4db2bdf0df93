"""An operator lets a worker process go: it gets nothing new, the audit says who and why; it must live."""

import uuid

import pytest

from harness.engine import operate
from harness.policy.errors import Invalid, NotFound
from harness.store import operations
from tests.stage import Stage


def test_a_worker_is_told_to_drain_once_with_a_reason_that_is_kept(stage: Stage) -> None:
    session, other = stage.add_session({"llm": 4}), stage.add_session({"llm": 4})
    with stage.open("staff") as staff:
        with pytest.raises(Invalid, match="say why"):
            operate.drain_worker(staff, session, actor="staff:ana", reason=" ")
        for outcome in ("draining", "already"):
            done = operate.drain_worker(staff, session, actor="staff:ana", reason="the host is patched")
            assert done.outcome == outcome
        seen = {one.session: one.draining for one in operations.now(staff).sessions}
        assert seen == {session: True, other: False}
        (act,) = operations.acts(staff, most=10)
        assert (act.actor, act.verb, act.reason) == ("staff:ana", "drain", "the host is patched")
        assert act.subject.startswith("worker test:")


def test_a_worker_that_is_gone_cannot_be_told(stage: Stage) -> None:
    session = stage.add_session({"llm": 4})
    stage.forget_beats(session)
    with stage.open("staff") as staff:
        for gone in (session, uuid.uuid4()):
            with pytest.raises(NotFound, match="no worker process"):
                operate.drain_worker(staff, gone, actor="staff:ana", reason="why not")
