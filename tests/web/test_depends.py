"""Runs as graphs and parents with children, over HTTP and in the admin."""

from typing import Any

from tests.web.conftest import Api, assert_problem


def nodes(*depends_on: list[Any]) -> list[dict[str, Any]]:
    return [
        {"kind": "noop.single", "input": {"i": at}, "name": f"n{at}", "depends_on": ons}
        for at, ons in enumerate(depends_on)
    ]


def test_a_node_that_depends_on_others_says_so_until_they_have_succeeded(api: Api) -> None:
    made = api.http.post("/api/v1/runs", json={"nodes": nodes([], ["n0"], [0, "n1"])})
    assert made.status_code == 202, made.text
    first, second, third = made.json()["task_ids"]
    tasks = [api.http.get(f"/api/v1/tasks/{one}").json() for one in (first, second, third)]
    assert [(one["ready"], one["waits_for"]) for one in tasks] == [
        (True, None),
        (False, "dependencies"),
        (False, "dependencies"),
    ]
    assert [one["title"] for one in tasks] == ["n0", "n1", "n2"], "by these names people find them again"
    why = api.http.get(f"/api/v1/tasks/{third}/why").json()
    assert why["reason"]["code"] == "dependencies" and why["reason"]["facts"]["left"] == 2
    assert api.http.post(f"/api/v1/tasks/{first}/cancel").json()["outcome"] == "cancelled"


def test_graphs_that_cannot_be_done_are_refused_with_their_field(api: Api) -> None:
    def refused(*depends_on: list[Any]) -> dict[str, Any]:
        answer = api.http.post("/api/v1/runs", json={"nodes": nodes(*depends_on)})
        return assert_problem(answer, 422, "invalid", answer.json().get("field"))

    assert "n0 -> n1 -> n0" in refused(["n1"], ["n0"])["detail"]
    assert refused([], ["nobody"])["field"] == "nodes[1].depends_on[0]"
    assert refused([], [7])["field"] == "nodes[1].depends_on[0]"
    for odd in (True, -1, 0.5, None, [0], "x" * 101):
        told = refused([], [odd])
        assert told["field"] == "nodes[1].depends_on[0]" and "another node's name" in told["detail"], odd
    answer = api.submit(depends_on=["n0"])
    assert answer.status_code == 422 and "depends_on" in answer.text, "a task alone has nothing to depend on"
