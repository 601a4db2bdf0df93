"""Questions to people over HTTP: listed, answered once, by key or by a signed link; and the page behind the link."""

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from harness.engine import execute
from harness.engine.approve import Link, links
from harness.kinds import Context, kind
from harness.store import transitions
from tests.stage import Stage
from tests.web.conftest import Api, Web, assert_problem


class Nothing(BaseModel):
    """Any input."""

    deny: str = "cancel"


@kind("test.asking_web", pool="db", input=Nothing)
def asking(ctx: Context, payload: Nothing) -> Any:
    return ctx.ask(
        "Send <b>it</b>?",
        choices=["by mail", "on paper"],
        timeout_s=3600,
        deny=payload.deny,  # type: ignore[arg-type]  # as the test says
    )


class Asks:
    """Tasks of a tenant that wait for a decision."""

    def __init__(self, stage: Stage, api: Api) -> None:
        self.stage = stage
        self.api = api
        self.tenant = int(stage.one("SELECT id FROM tenant WHERE name = %s", api.tenant))
        self.session = stage.add_session()

    def one(self, deny: str = "cancel") -> str:
        (task,) = self.stage.submit("test.asking_web", tenant=self.tenant, input=f'{{"deny": "{deny}"}}')
        self.run()
        assert self.stage.state(task) == "waiting_approval"
        return str(self.stage.one("SELECT public_id FROM task WHERE id = %s", task))

    def run(self) -> None:
        with self.stage.process(self.session) as process:
            for message in list(self.stage.tick()):
                execute.run_lease(process, message.lease, message.token)

    def number(self, public: str) -> int:
        return int(self.stage.one("SELECT id FROM task WHERE public_id = %s", public))

    def state(self, public: str) -> str:
        return self.stage.state(self.number(public))

    def link(self, public: str, **more: Any) -> httpx.Response:
        return self.api.http.post(f"/api/v1/tasks/{public}/approval-link", json={"for": "mia", **more})


@pytest.fixture
def asks(stage_beside: Stage, api: Api) -> Asks:
    return Asks(stage_beside, api)


def post(api: Api, public: str, verb: str, body: Any = None) -> httpx.Response:
    return api.http.post(f"/api/v1/tasks/{public}/{verb}", json=body)


def form_of(page: httpx.Response) -> dict[str, str]:
    found = re.search(r'name="token" value="([^"]+)"', page.text)
    assert found is not None, page.text
    return {"token": found[1]}


def test_what_waits_is_listed_and_answered_and_the_answer_stays(api: Api, asks: Asks, make_api: Any) -> None:
    public, other = asks.one(), asks.one()
    page = api.http.get("/api/v1/approvals", params={"limit": 1}).json()
    (waiting,) = page["items"]
    assert waiting["task_id"] == public and waiting["waits"] and waiting["choices"] == ["by mail", "on paper"]
    assert waiting["prompt"] == "Send <b>it</b>?" and waiting["verdict"] is None and waiting["waited_s"] >= 0
    rest = api.http.get("/api/v1/approvals", params={"cursor": page["next"]}).json()
    assert [one["task_id"] for one in rest["items"]] == [other] and rest["next"] is None
    task = api.http.get(waiting["links"]["self"]).json()
    assert task["state"] == "waiting_approval" and {"approve", "deny", "cancel"} <= set(task["can"])
    done = post(api, public, "approve", {"choice": "on paper", "reason": "as ever"})
    assert done.status_code == 200, done.text
    assert (done.json()["outcome"], done.json()["choice"], done.json()["task"]["ready"]) == (
        "approved",
        "on paper",
        True,
    )
    assert "approve" not in done.json()["task"]["can"]
    (kept,) = api.http.get(f"/api/v1/tasks/{public}/approvals").json()["items"]
    assert (kept["verdict"], kept["choice"], kept["note"], kept["waits"]) == ("approve", "on paper", "as ever", False)
    assert kept["decided_by"] and kept["decided_at"] and kept["waited_s"] > 0
    assert [one["task_id"] for one in api.http.get("/api/v1/approvals").json()["items"]] == [other]
    stranger = make_api("stranger")
    assert stranger.http.get("/api/v1/approvals").json()["items"] == []
    for verb in ("approve", "deny", "reask"):
        assert_problem(post(stranger, other, verb), 404, "not_found")
    assert_problem(stranger.http.get(f"/api/v1/tasks/{other}/approvals"), 404, "not_found")
    asks.run()
    assert api.http.get(waiting["links"]["self"]).json()["result"] == "on paper"


def test_the_second_answer_is_told_who_was_first_and_when(api: Api, asks: Asks) -> None:
    public = asks.one()
    assert post(api, public, "approve", {"choice": "by mail"}).status_code == 200
    for verb, body in (("approve", {"choice": "on paper"}), ("deny", None)):
        problem = assert_problem(post(api, public, verb, body), 409, "conflict")
        assert "decided already: approved (by mail) by" in problem["detail"]
        assert problem["decided_by"] and problem["decided_at"].endswith("+00:00") and problem["choice"] == "by mail"


def test_a_no_cancels_or_is_the_answer(api: Api, asks: Asks) -> None:
    ended, told = asks.one(), asks.one("answer")
    assert post(api, ended, "deny", {"reason": "no"}).json()["outcome"] == "denied"
    task = api.http.get(f"/api/v1/tasks/{ended}").json()
    assert task["state"] == "cancelled" and task["error"]["class"] == "denied"
    assert post(api, told, "deny").json()["outcome"] == "answered"
    asks.run()
    assert api.http.get(f"/api/v1/tasks/{told}").json()["result"] == "denied"
    assert_problem(post(api, ended, "approve", {"choice": "by mail"}), 409, "conflict")


def test_bad_answers_name_their_field_and_change_nothing(api: Api, asks: Asks) -> None:
    public = asks.one()
    for body, field in (
        ({}, "choice"),
        ({"choice": "by fax"}, "choice"),
        ({"choice": 1}, "choice"),
        ({"choice": "by mail", "reason": "x" * 501}, "reason"),
        ({"choice": "by mail", "reason": "a\nb"}, "reason"),
        ({"choice": "by mail", "by": "me"}, "by"),
    ):
        assert_problem(post(api, public, "approve", body), 422, "invalid", field)
    assert_problem(post(api, str(uuid.uuid4()), "approve", {}), 404, "not_found")
    queued = api.submit().json()["task_id"]
    assert_problem(post(api, queued, "approve"), 409, "conflict")
    assert_problem(asks.link(queued), 409, "conflict")
    assert_problem(asks.link(public, valid_s=0), 422, "invalid", "valid_s")
    assert_problem(api.http.get("/api/v1/approvals", params={"page": "2"}), 422, "invalid", "page")
    assert asks.state(public) == "waiting_approval"


def test_who_may_only_read_can_not_decide(make_api: Any, stage_beside: Stage) -> None:
    reader = make_api("reader", scopes=("read",))
    public = Asks(stage_beside, reader).one()
    assert len(reader.http.get("/api/v1/approvals").json()["items"]) == 1
    for verb in ("approve", "deny", "reask", "approval-link"):
        assert_problem(post(reader, public, verb, {}), 403, "forbidden")


def test_a_link_shows_a_form_and_decides_once(asks: Asks, web: Web) -> None:
    public = asks.one()
    made = asks.link(public, valid_s=60).json()
    assert made["url"].startswith(f"{web.url}/decide/")
    with web.client() as person:
        page = person.get(made["url"])
        assert page.status_code == 200 and "Send &lt;b&gt;it&lt;/b&gt;?" in page.text and "by mail" in page.text
        assert page.headers["cache-control"] == "no-store" and page.headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert asks.state(public) == "waiting_approval" and not page.cookies  # looking decides nothing
        form = form_of(page)
        done = person.post(
            made["url"], data={**form, "verdict": "approve", "choice": "by mail", "reason": "go", "name": "Mia"}
        )
        assert done.status_code == 200 and "Thank you" in done.text
        assert "approved (by mail) by link for mia: Mia" in done.text
        again = person.post(made["url"], data={**form, "verdict": "deny"})
        assert again.status_code == 409 and "approved (by mail) by link for mia: Mia" in again.text
        late = person.get(made["url"])
        assert late.status_code == 200 and "It was approved (by mail)" in late.text and "<form" not in late.text
    (kept,) = asks.api.http.get(f"/api/v1/tasks/{public}/approvals").json()["items"]
    assert (kept["verdict"], kept["decided_by"], kept["note"]) == ("approve", "link for mia: Mia", "go")


def test_an_altered_or_expired_link_and_a_forged_form_are_clear_pages(asks: Asks, web: Web) -> None:
    public = asks.one()
    good = asks.link(public).json()["url"]
    root, _, text = good.rpartition("/")
    body, _, signature = text.rpartition(":")
    link = Link(approval=1, asks=1, tenant=asks.tenant, label="mia")
    expired = links.made(link, now=datetime.now(UTC) - timedelta(days=9))
    with web.client() as person:
        for bad in (f"{body[:-2]}AA:{signature}", f"{body}:{signature[:-1]}", body, "x", "a/b", "%00"):
            for send in (person.get, person.post):
                page = send(f"{root}/{bad}")
                assert page.status_code == 404 and "leads nowhere" in page.text and "<form" not in page.text, bad
        page = person.get(f"{root}/{expired}")
        assert page.status_code == 410 and "has expired" in page.text and "<form" not in page.text
        assert person.post(f"{root}/{expired}", data={"verdict": "deny"}).status_code == 410
        form = form_of(person.get(good))
        other = form_of(person.get(asks.link(asks.one()).json()["url"]))
        for token in ("", "x", other["token"]):
            page = person.post(good, data={"token": token, "verdict": "approve", "choice": "by mail"})
            assert page.status_code == 403 and "open for too long" in page.text
        for wrong in ({"verdict": "maybe"}, {"verdict": "approve"}, {"verdict": "approve", "choice": "fax"}):
            assert person.post(good, data={**form, **wrong}).status_code == 422
        assert person.put(good).status_code == 405
        assert person.post(good, data={f"a{n}": "b" for n in range(1001)}).status_code == 400
    assert "number of GET/POST parameters" not in web.log.read_text(), "who sends rubbish doesn't fill the log"
    assert asks.state(public) == "waiting_approval"


def test_the_servers_own_key_signs_and_time_ends_a_link(asks: Asks) -> None:
    now = datetime.now(UTC)
    link = Link(approval=7, asks=2, tenant=3, label="mia")
    text = links.made(link, now=now, life_s=60)
    assert links.read(text, now=now + timedelta(seconds=59)) == link
    with pytest.raises(links.LinkExpired):
        links.read(text, now=now + timedelta(seconds=62))
    token = links.form_token(text, now=now)
    assert links.check_form(text, token, now=now + timedelta(minutes=59))
    assert not links.check_form(text, token, now=now + timedelta(minutes=61))


def test_a_link_to_an_earlier_asking_leads_nowhere_new(api: Api, asks: Asks, web: Web) -> None:
    public = asks.one()
    old = asks.link(public).json()["url"]
    asks.stage.connection.execute(
        "UPDATE approval SET deadline = clock_timestamp() WHERE task_id = %s", (asks.number(public),)
    )
    transitions.time_out(asks.stage.connection, actor="sweep")
    with web.client() as person:
        assert "its task is paused" in person.get(old).text
        assert api.http.get(f"/api/v1/tasks/{public}").json()["can"].count("reask") == 1
        assert post(api, public, "reask").json()["outcome"] == "reasked"
        page = person.get(old)
        assert "asked anew: take the newer link" in page.text and "<form" not in page.text
        fresh = asks.link(public).json()["url"]
        assert person.post(fresh, data={**form_of(person.get(fresh)), "verdict": "deny"}).status_code == 200
    assert asks.state(public) == "cancelled"
