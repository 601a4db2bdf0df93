"""A delivery carries its token, is signed only for its own endpoint, and no error repeats a secret."""

import base64
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import standardwebhooks
from pydantic import ValidationError

from harness.kinds import Context, Permanent, RateLimited, TimedOut, Transient
from harness.policy.errors import ErrorClass
from tasks.tool_webhook.kind import Delivery, webhook
from tests.kinds.sites import Page, Site, raw, site

SECRET = "whsec_" + base64.b64encode(b"an-old-secret-of-32-bytes-length").decode()
NEW = "whsec_" + base64.b64encode(b"the-new-secret-of-32-bytes-long!").decode()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site() as found:
        monkeypatch.setenv("HARNESS_EGRESS_ALLOW", found.allow)
        monkeypatch.setenv("HARNESS_WEBHOOK_URL_BILLING", found.url("/hook?key=hunter2"))
        monkeypatch.setenv("HARNESS_WEBHOOK_TENANTS_BILLING", "1, 7")
        monkeypatch.setenv("HARNESS_WEBHOOK_SECRET_BILLING", SECRET)
        found.pages["/hook"] = Page(b"ok", 201)
        yield found


def test_a_delivery_carries_the_body_and_the_token(alone: Any, receiver: Site) -> None:
    ctx = alone()
    found = webhook(ctx, Delivery(url=receiver.url("/hook"), body={"a": ["é", 1, None]}))
    assert (found.status, found.token, found.signed) == (201, "token-1-deliver", False)
    seen = receiver.seen[0]
    assert (seen.method, json.loads(seen.body)) == ("POST", {"a": ["é", 1, None]})
    assert seen.headers["idempotency-key"] == found.token and seen.headers["content-type"] == "application/json"
    assert "webhook-signature" not in seen.headers
    assert ctx.calls == ["tool:webhook"]


def test_a_signed_delivery_verifies_with_the_secret_and_with_no_other(ctx: Context, receiver: Site) -> None:
    assert webhook(ctx, Delivery(endpoint="billing", body=["x", "é"])).signed
    seen = receiver.seen[0]
    assert standardwebhooks.Webhook(SECRET).verify(seen.body, seen.headers) == ["x", "é"]
    assert seen.headers["webhook-id"] == seen.headers["idempotency-key"] == "token-1-deliver"
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(NEW).verify(seen.body, seen.headers)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SECRET).verify(seen.body + b" ", seen.headers)


def test_while_a_secret_is_replaced_both_verify(ctx: Context, receiver: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_WEBHOOK_SECRET_BILLING", f"{NEW} {SECRET}")
    webhook(ctx, Delivery(endpoint="billing", body={}))
    for secret in (SECRET, NEW):
        standardwebhooks.Webhook(secret).verify(receiver.seen[0].body, receiver.seen[0].headers)


def test_an_endpoint_is_only_for_its_tenants_and_tells_others_nothing(alone: Any, receiver: Site) -> None:
    assert webhook(alone(tenant_id=7), Delivery(endpoint="billing", body={})).signed
    said = set()
    for name in ("billing", "unknown"):
        with pytest.raises(Permanent) as refused:
            webhook(alone(tenant_id=2), Delivery(endpoint=name, body={}))
        said.add(str(refused.value).replace(name, "N").replace(name.upper(), "N"))
    assert len(said) == 1 and len(receiver.seen) == 1


@pytest.mark.parametrize("bad", ["whsec_", "whsec_!!!", "c2hvcnQ=", "é" * 40, f"{SECRET} whsec_x"])
def test_a_secret_that_is_none_sends_nothing_and_isnt_repeated(
    ctx: Context, receiver: Site, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    monkeypatch.setenv("HARNESS_WEBHOOK_SECRET_BILLING", bad)
    with pytest.raises(Permanent, match="HARNESS_WEBHOOK_SECRET_BILLING: must be") as refused:
        webhook(ctx, Delivery(endpoint="billing", body={}))
    assert all(part not in str(refused.value) for part in bad.split() if part != "whsec_")
    assert not receiver.seen


@pytest.mark.parametrize(
    ("status", "error", "error_class"),
    [
        (302, Permanent, ErrorClass.VALIDATION),
        (400, Permanent, ErrorClass.VALIDATION),
        (403, Permanent, ErrorClass.PERMISSION),
        (409, Transient, ErrorClass.SERVER_ERROR),
        (410, Permanent, ErrorClass.VALIDATION),
        (425, Transient, ErrorClass.SERVER_ERROR),
        (429, RateLimited, ErrorClass.RATE_LIMIT),
        (503, Transient, ErrorClass.SERVER_ERROR),
        (504, TimedOut, ErrorClass.TIMEOUT),
    ],
)
def test_a_refusal_is_classed_and_sent_once(
    ctx: Context, receiver: Site, status: int, error: type[Transient], error_class: ErrorClass
) -> None:
    receiver.pages["/hook"] = Page(status=status, headers={"location": "/hook", "retry-after": "4"})
    with pytest.raises(error) as refused:
        webhook(ctx, Delivery(endpoint="billing", body={}))
    assert refused.value.error_class is error_class
    if status in (409, 425, 429, 503):
        assert refused.value.retry_after_s == 4
    assert len(receiver.seen) == 1 and "hunter2" not in str(refused.value)


def test_an_address_inside_is_refused_for_a_url_and_for_an_endpoint(
    ctx: Context, receiver: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_EGRESS_ALLOW")
    for where in ({"url": "http://192.168.1.1/"}, {"endpoint": "billing"}):
        with pytest.raises(Permanent) as refused:
            webhook(ctx, Delivery.model_validate({**where, "body": {}}))
        assert refused.value.error_class is ErrorClass.PERMISSION
    assert not receiver.seen


def test_a_silent_receiver_is_a_timeout(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(connection: socket.socket) -> None:
        connection.recv(1)

    with raw(silent) as mute:
        monkeypatch.setenv("HARNESS_EGRESS_ALLOW", mute.allow)
        with pytest.raises(TimedOut):
            webhook(ctx, Delivery(url=mute.url(), body={}, timeout_s=0.3))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"url": "http://a.example/", "endpoint": "a"},
        {"endpoint": "A-b"},
        {"endpoint": "../x"},
        {"url": "http://a.example/", "secret": "s"},
        {"url": "http://a.example/", "body": "text"},
    ],
)
def test_a_wrong_input_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Delivery.model_validate({"body": {}, **wrong})
