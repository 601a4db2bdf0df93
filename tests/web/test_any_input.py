"""Whatever is sent, the answer is a result or a problem document, never a 500."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.web.conftest import Api

_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
_LEAF = st.none() | st.booleans() | st.integers() | st.floats() | _TEXT
_JSON = st.recursive(
    _LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3), max_leaves=8
)
_MEMBERS = {
    "kind": st.sampled_from(["noop", "ingest.document", "noop.fault", "none"]) | _LEAF,
    "input": st.fixed_dictionaries(
        {}, optional={"i": _LEAF, "ts": _LEAF, "tag": _LEAF, "name": _TEXT, "content": _TEXT, "content_type": _LEAF}
    )
    | _JSON,
    "priority": st.integers(-1, 5) | _LEAF,
    "not_before": st.sampled_from(["2030-01-01T00:00:00Z", "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00-12:00"])
    | _LEAF,
    "deadline": st.sampled_from(["2031-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "2030"]) | _LEAF,
    "start_by": _LEAF,
    "ttl_s": st.sampled_from([0, 1e-9, 60, 3e9, 1e308]) | _LEAF,
    "title": _TEXT | _LEAF,
    "tags": st.lists(_TEXT | st.sampled_from(["red", "team:a"]), max_size=3) | _LEAF,
}
_TASK = st.fixed_dictionaries({}, optional=_MEMBERS)
_RUN = st.fixed_dictionaries(
    {}, optional={"name": _LEAF, "fanout_cap": _LEAF, "nodes": st.lists(_TASK | _LEAF, max_size=3) | _JSON}
)
_BODY = st.binary(max_size=40) | (_TASK | _RUN | _JSON).map(lambda value: json.dumps(value).encode())
FINE = {200, 202, 400, 403, 409, 413, 422}


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=_BODY, path=st.sampled_from(["/api/v1/tasks", "/api/v1/runs"]), key=st.sampled_from([None, "k", "l"]))
def test_any_body_is_answered(api: Api, body: bytes, path: str, key: str | None) -> None:
    headers = {"Idempotency-Key": key} if key else {}
    answer = api.http.post(path, content=body, headers=headers)
    assert answer.status_code in FINE, (answer.status_code, answer.text)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
    else:  # what was taken can be read
        assert api.http.get(answer.json()["links"]["self"]).status_code == 200
        assert api.http.get("/api/v1/tasks").status_code == 200


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.dictionaries(
        st.sampled_from(["state", "kind", "run", "priority", "tag", "schedule", "q", "limit", "cursor", "x"]),
        st.sampled_from(
            ["queued", "noop", "1", "-1", "99999999999999999999", "djE6MQ", "djE6OTk5OTk5OTk5OTk5OTk5OTk5OTk"]
        )
        | st.text(max_size=8),
        max_size=4,
    ),
    path=st.sampled_from(["/api/v1/tasks", "/api/v1/tasks/7d444840-9dc0-11d1-b245-5ffdce74fad2/trace"]),
)
def test_any_query_is_answered(api: Api, query: dict[str, Any], path: str) -> None:
    answer = api.http.get(path, params=query)
    assert answer.status_code in {200, 404, 422}, (answer.status_code, answer.text)
