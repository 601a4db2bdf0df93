"""The language models that kinds may call: set once by the process's settings, resolved when a call is made.

A provider's key is read from the environment at that moment and goes into the client alone. It must never get into a
result, an error or a log: `redact` takes it out of any text, whatever brought it there.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.kinds import targets
from harness.kinds.errors import Permanent
from harness.policy.errors import Invalid
from harness.policy.models import Models

REDACTED = "[redacted]"
SECRET_LEAST_CHARS = 8  # anything shorter ("none", "demo") is no secret, and would blot out ordinary words

_configured: Models | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """How to call a model now. `resource`: what its calls take a permit of; `priced_as`: its name in the price table.

    `api_key` stays out of `repr`.
    """

    name: str
    resource: str
    upstream: str
    priced_as: str
    base_url: str
    api_key: str = field(repr=False)


def configure(models: Models) -> None:
    """Say which models there are; the settings do, once."""
    global _configured
    _configured = models


def configured() -> Models:
    """Return the models there are. Raises: Invalid when the settings named none."""
    if _configured is None:
        raise Invalid("config/models.toml was not read: load the settings first", field="models")
    return _configured


def check(name: str | None) -> str | None:
    """Return a model that a client names (None: the default), checked. Raises: ValueError naming those there are."""
    known = configured().models
    if name is not None and name not in known:
        raise ValueError(f"there is no model {name!r} here; config/models.toml names {', '.join(sorted(known))}")
    return name


def access(name: str | None = None, environment: Mapping[str, str] | None = None) -> Access:
    """Return how to call a model (None: the default one), by the environment as it is now.

    Raises: Permanent naming the variable that this worker lacks, or the models there are.
    """
    models = configured()
    environment = os.environ if environment is None else environment
    model = models.models.get(name or models.default)
    if model is None:
        raise Permanent(
            f"model: there is no {name!r} here; config/models.toml names {', '.join(sorted(models.models))}"
        )
    provider = models.providers[model.provider]
    upstream = model.upstream or _needed(environment, model.upstream_env or "")
    return Access(
        name=model.name,
        resource=model.resource,
        upstream=upstream,
        priced_as=model.name if model.price else upstream,
        base_url=provider.base_url or _needed(environment, provider.base_url_env or ""),
        # Where no key is needed the client still wants one.
        api_key=environment.get(provider.api_key_env or "", "").strip() or "none",
    )


def resource(name: str | None = None) -> str:
    """Return the resource of a model (None: the default one); that of the default one for a name that isn't known."""
    models = configured()
    return (models.models.get(name or models.default) or models.models[models.default]).resource


def resources() -> tuple[str, ...]:
    """Return the resources of all models, that of the default one first."""
    first = resource()
    return (first, *sorted({one.resource for one in configured().models.values()} - {first}))


def cheaper() -> str | None:
    """Return the model to ask in place of any other while work is degraded. None: none is configured."""
    return configured().cheaper


def cheaper_needs() -> dict[str, int] | None:
    """Return what a task that asks that model needs. None: there is none, so it needs what it needs anyhow."""
    name = cheaper()
    return None if name is None else {resource(name): 1}


def redact(text: str) -> str:
    """Return the text without any provider's key or target's password. Cheap: a search for each of this environment.

    >>> redact("nothing secret")
    'nothing secret'
    """
    providers = _configured.providers.values() if _configured is not None else ()
    keys = [os.environ.get(provider.api_key_env or "", "").strip() for provider in providers]
    for secret in (*keys, *targets.secrets()):
        if len(secret) >= SECRET_LEAST_CHARS and secret in text:
            text = text.replace(secret, REDACTED)
    return text


def _needed(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise Permanent(f"{name} is not set where the worker of pool llm runs: set it and start the worker again")
    return value
