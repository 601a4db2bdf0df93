"""Someone sets the clock of the dispatcher's machine: who goes next, what is lost and who leads stay as they were."""

import subprocess

from tests.recovery.conftest import Ward
from tests.recovery.stepped import JUMPS
from tests.stage import wait_until

PAUSE_S = 0.25


def stepped_dispatcher(ward: Ward) -> "subprocess.Popen[bytes]":
    process = ward.start("-m", "tests.recovery.stepped", "manage", "dispatcher")
    wait_until(lambda: ward.leads(process), within_s=30)
    return process


def test_a_step_of_an_hour_forward_and_back_changes_no_turn_no_lease_and_no_leader(ward: Ward) -> None:
    stage, jump = ward.stage, ward.folder / "jump"
    ward.environment[JUMPS] = str(jump)
    other = stage.add_tenant("other")
    dispatcher = stepped_dispatcher(ward)
    ward.worker("tool_read")
    epoch = ward.leader()[1]
    began = stage.one("SELECT clock_timestamp()")

    def wave(first: int, n: int) -> None:
        """Work of the elephant, then one task of another tenant, which must not wait for it."""
        done = ward.count("succeeded")
        ward.submit("recovery.thread", *[{"i": first + k, "effects": 4, "pause_s": PAUSE_S} for k in range(n)])
        (victim,) = ward.submit("recovery.thread", {"i": first + n}, tenant=other)
        wait_until(lambda: stage.state(victim) == "succeeded", within_s=20)
        assert ward.count("succeeded") < done + n + 1, "the other tenant's task went before the rest of the elephant's"
        wait_until(lambda: ward.count("succeeded") == done + n + 1, within_s=60)

    wave(0, 24)
    asleep = stage.submit("noop.single", not_before=stage.one("SELECT clock_timestamp() + interval '30 minutes'"))
    jump.touch()
    wave(100, 24)
    jump.unlink()
    wave(200, 24)

    assert dispatcher.poll() is None and ward.leader()[1] == epoch, "it never lost the lead"
    assert stage.state(asleep[0]) == "queued" and not stage.row(asleep[0])["ready"], "an hour on its clock is none"
    assert stage.one("SELECT count(*) FROM lease") == 0
    assert stage.one("SELECT count(*) FROM task WHERE lost_starts > 0 OR attempts_used > 0 OR release_no > 1") == 0
    assert stage.one("SELECT max(at) <= clock_timestamp() AND min(at) > %s - interval '1 minute' FROM event", began)
