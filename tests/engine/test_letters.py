"""Dead letters: what has failed for good is listed and counted by reason, newest first, each tenant's own."""

import json
import uuid
from typing import Any

import psycopg
import pytest

from harness.engine import letters
from harness.engine.letters import Wanted
from harness.policy.errors import NotFound
from harness.store import letters as stored
from harness.store import queries
from harness.store.letters import END_OF_TIME
from tests.dead_letters import bury, public
from tests.stage import Stage


def test_letters_are_listed_by_when_they_died_with_what_a_person_needs(stage: Stage) -> None:
    first, second, third = stage.submit(n=3)
    bury(stage, [third])
    bury(stage, [first], "row {} is odd", "validation")
    found, following = letters.page(stage.connection, Wanted(), tenant=stage.tenant, most=10)
    assert [letter.id for letter in found] == [first, third] and following is None
    letter = found[0]
    assert (letter.error_class, letter.message) == ("validation", f"row {first} is odd")
    assert (letter.attempts_used, letter.lost_starts, letter.slot_s, letter.tenant) == (2, 1, 2.5, "acme")
    assert (letter.input, letter.input_chars) == ("{}", 2)
    assert [event["event"] for event in letter.events] == ["submit"]
    assert stage.state(second) == "queued"


def test_a_page_goes_on_where_the_last_one_ended(stage: Stage) -> None:
    tasks = bury(stage, stage.submit(n=7))
    seen: list[int] = []
    before: Any = END_OF_TIME
    while before is not None:
        found, before = letters.page(stage.connection, Wanted(), tenant=stage.tenant, before=before, most=3)
        seen += [letter.id for letter in found]
    assert seen == tasks[::-1]
    assert [one.id for page in letters.each(stage.connection, Wanted(), tenant=None) for one in page] == tasks[::-1]


def test_filters_by_kind_class_and_reason_and_a_short_page_has_a_next_one(stage: Stage) -> None:
    odd = bury(stage, stage.submit(n=2), "row {} is odd", "validation")
    bury(stage, stage.submit(n=2), "no answer in 2 s", "timeout")
    other = bury(stage, stage.submit("noop.fault", n=1), "row {} is odd", "validation")

    def look(**wanted: str) -> set[int]:
        found, _ = letters.page(stage.connection, Wanted(**wanted), tenant=stage.tenant, most=10)
        return {letter.id for letter in found}

    assert look(kind="noop.fault") == set(other) and look(error_class="validation") == {*odd, *other}
    (group,) = [g for g in letters.groups(stage.connection, tenant=stage.tenant).items if g.example == odd[1]]
    assert look(reason=group.reason.key) == set(odd) and group.reason.pattern == "row N is odd"
    assert look(kind="noop.fault", reason=group.reason.key) == set()
    found, following = letters.page(
        stage.connection, Wanted(error_class="timeout"), tenant=stage.tenant, most=2, scan=1
    )
    assert found == [] and following is not None


def test_groups_count_the_newest_by_reason_and_say_when_there_are_more(stage: Stage) -> None:
    bury(stage, stage.submit(n=3), "HTTP {0} from https://x.example/a/{0}", "server_error")
    bury(stage, stage.submit(n=2), "no answer", "timeout")
    theirs = stage.add_tenant("other")
    bury(stage, stage.submit(n=1, tenant=theirs), "HTTP 7 from https://x.example/b", "server_error")
    own = letters.groups(stage.connection, tenant=stage.tenant)
    assert [(g.count, g.reason.error_class, g.tenants) for g in own.items] == [
        (3, "server_error", 1),
        (2, "timeout", 1),
    ]
    assert (own.looked, own.more) == (5, False)
    everyone = letters.groups(stage.connection, tenant=None)
    assert (everyone.items[0].count, everyone.items[0].tenants) == (4, 2)
    some = letters.groups(stage.connection, tenant=stage.tenant, most=2)
    assert (some.looked, some.more, [g.reason.error_class for g in some.items]) == (2, True, ["timeout"])
    narrowed = letters.groups(stage.connection, Wanted(error_class="timeout"), tenant=stage.tenant)
    assert [g.count for g in narrowed.items] == [2]


def test_what_expired_before_its_first_attempt_is_a_letter_without_one(stage: Stage) -> None:
    (task,) = stage.submit(start_by=None)
    stage.connection.execute(
        "UPDATE task SET state = 'failed_terminal', ready = false, finished_at = now() WHERE id = %s", (task,)
    )
    letter = letters.one(stage.connection, public(stage, task))
    assert (letter.error_class, letter.slot_s, letter.attempts_used) == ("expired", None, 0)


def test_the_traceback_is_apart_and_one_letter_has_all_of_its_input(stage: Stage) -> None:
    (task,) = bury(stage, stage.submit(input=json.dumps({"tag": "x" * 5000})))
    letter = letters.one(stage.connection, public(stage, task))
    assert json.loads(letter.input) == {"tag": "x" * 5000}
    assert "secret.py" not in repr(letter) and stored.traceback(stage.connection, task) == "File secret.py"
    (listed,), _ = letters.page(stage.connection, Wanted(), tenant=stage.tenant, most=1)
    assert len(listed.input) == stored.INPUT_CHARS < listed.input_chars
    (live,) = stage.submit()
    for missing in (public(stage, live), uuid.uuid4()):
        with pytest.raises(NotFound):
            letters.one(stage.connection, missing)


def test_role_web_sees_its_tenants_letters_alone(stage: Stage) -> None:
    theirs = stage.add_tenant("other")
    (ours,), (foreign,) = bury(stage, stage.submit()), bury(stage, stage.submit(tenant=theirs))
    with stage.open("web") as web, queries.as_tenant(web, stage.tenant):
        for tenant in (stage.tenant, theirs, None):
            found, _ = letters.page(web, Wanted(), tenant=tenant, most=10)
            assert {letter.id for letter in found} <= {ours}
        with pytest.raises(NotFound):
            letters.one(web, public(stage, foreign))


def test_a_task_that_is_no_dead_letter_has_no_time_of_death(stage: Stage) -> None:
    (task,) = stage.submit()
    assert stage.row(task)["dead_at"] is None
    bury(stage, [task])
    assert stage.row(task)["dead_at"] == stage.row(task)["finished_at"]
    with pytest.raises(psycopg.errors.GeneratedAlways):
        stage.connection.execute("UPDATE task SET dead_at = now() WHERE id = %s", (task,))
