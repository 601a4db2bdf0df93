"""`tool.webhook`: a JSON body delivered by POST, with one idempotency token over all attempts, signed where set so.

The delivery is a step: one that was recorded isn't made again, and one that wasn't is repeated under the step's token.

A secret comes from the worker's environment, bound to its endpoint's address and tenants: it is in no payload, result,
error or log, and no tenant can have something signed for an address of their own.
"""

import base64
import datetime
import json
import os
from dataclasses import dataclass, field
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from harness.kinds import Context, Permanent, Transient, egress, kind

RESOURCE = "tool:webhook"
PREFIX = "HARNESS_WEBHOOK"  # ..._URL_<NAME>, ..._SECRET_<NAME>, ..._TENANTS_<NAME>
SECRET_MIN_BYTES = 24  # as the Standard Webhooks specification asks


class Delivery(BaseModel):
    """What to deliver, and where: an address, or the name of an endpoint that the operator has set up."""

    model_config = ConfigDict(extra="forbid")

    url: str | None = Field(default=None, min_length=1, max_length=8_192, description="http or https; unsigned")
    endpoint: str | None = Field(
        default=None, pattern=r"^[a-z][a-z0-9_]{0,39}$", description="signed if it has a secret"
    )
    body: dict[str, JsonValue] | list[JsonValue]
    timeout_s: float = Field(default=10, ge=0.1, le=30)

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.url is None) == (self.endpoint is None):
            raise ValueError("give either url or endpoint")
        return self


class Delivered(BaseModel):
    """The receiver took it: its status, the token that it saw, and whether the delivery was signed."""

    status: int
    token: str
    signed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Endpoint:
    url: str = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    variable: str = ""


@kind(
    "tool.webhook",
    pool="tool_write",
    input=Delivery,
    output=Delivered,
    resources={RESOURCE: 1},
    timeout_s=45,
    max_attempts=6,
    est_s=0.5,
)
def webhook(ctx: Context, payload: Delivery) -> Delivered:
    """Deliver once. Raises: Permanent for an unknown endpoint, a refused address or a 4xx; else as `egress.post`."""
    endpoint = _Endpoint(url=payload.url) if payload.url is not None else _named(payload.endpoint or "", ctx.tenant_id)
    body = json.dumps(payload.body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    def deliver() -> dict[str, JsonValue]:
        token = ctx.token
        headers = {"content-type": "application/json", "idempotency-key": token}
        if endpoint.secrets:
            headers |= _signatures(endpoint, token, body, now=datetime.datetime.now(datetime.UTC))
        status = ctx.call(RESOURCE, lambda: _post(endpoint.url, body.encode(), headers, payload.timeout_s))
        return {"status": status, "token": token, "signed": bool(endpoint.secrets)}

    return Delivered.model_validate(ctx.step("deliver", deliver))


def _post(url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> int:
    """Return the 2xx of the receiver. Raises: what another answer is."""
    answer = egress.post(url, body=body, headers=headers, timeout_s=timeout_s)
    if 200 <= answer.status < 300:
        return answer.status
    if answer.status in (409, 425):
        # What a receiver says whose first delivery of this token is still under way.
        raise Transient(f"the receiver answered {answer.status}", retry_after_s=answer.retry_after_s)
    error = egress.error_of_status(answer.status, "the receiver", retry_after_s=answer.retry_after_s)
    raise error or Permanent(
        f"the receiver answered {answer.status}; a webhook follows no redirect: give the address that it leads to"
    )


def _named(name: str, tenant: int) -> _Endpoint:
    """Return an endpoint of the environment. Raises: Permanent naming the variable, never its value."""
    upper = name.upper()
    url = os.environ.get(f"{PREFIX}_URL_{upper}", "").strip()
    tenants = os.environ.get(f"{PREFIX}_TENANTS_{upper}", "").replace(",", " ").split()
    # One message for both: who may not use an endpoint doesn't learn that there is one.
    if not url or not ("*" in tenants or str(tenant) in tenants):
        raise Permanent(
            f"endpoint: {name!r} isn't set up for this tenant: set {PREFIX}_URL_{upper} and {PREFIX}_TENANTS_{upper} "
            f"(ids of tenants, or *) where the worker of pool tool_write runs"
        )
    variable = f"{PREFIX}_SECRET_{upper}"
    return _Endpoint(url=url, secrets=tuple(os.environ.get(variable, "").split()), variable=variable)


def _signatures(endpoint: _Endpoint, token: str, body: str, *, now: datetime.datetime) -> dict[str, str]:
    """Return the headers of the Standard Webhooks specification, one signature for each secret (rotation)."""
    import standardwebhooks

    signers = [standardwebhooks.Webhook(_key(secret, endpoint.variable)) for secret in endpoint.secrets]
    return {
        "webhook-id": token,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signer.sign(msg_id=token, timestamp=now, data=body) for signer in signers),
    }


def _key(secret: str, variable: str) -> bytes:
    """Return the key that a secret's text holds. Raises: Permanent naming the variable, never the value."""
    text = secret.removeprefix("whsec_")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        key = b""
    if len(key) < SECRET_MIN_BYTES:
        raise Permanent(
            f"{variable}: must be whsec_ and base64 of at least {SECRET_MIN_BYTES} bytes; two of them, separated by a "
            "blank, while a secret is replaced"
        )
    return key
