"""The language models that may be called, and what they cost: frozen values from config/models.toml.

`parse` takes the mapping that `tomllib` returns and does no I/O. A provider's key is named here by the environment
variable that holds it, never given. A value that makes no sense is refused with the path of the key.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.policy.toml import TomlFile

MILLION = 1_000_000
USD_MOST = 1e6  # for a million tokens: beyond, someone has mistaken the unit
_FILE = TomlFile("models.toml")
_table, _only, _refuse = _FILE.table, _FILE.only, _FILE.refuse
_NAME = re.compile(r"[A-Za-z0-9][\w.:/-]{0,199}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Provider:
    """An endpoint that speaks OpenAI's chat completions. `*_env` name environment variables of the worker."""

    name: str
    api_key_env: str | None
    base_url: str | None = None
    base_url_env: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """USD for a million tokens."""

    input_usd: float
    output_usd: float

    def cost_usd(self, tokens_in: int, tokens_out: int) -> float:
        """Return what a call costs, in USD.

        >>> Price(input_usd=2.0, output_usd=8.0).cost_usd(1_000, 500)
        0.006
        """
        return (tokens_in * self.input_usd + tokens_out * self.output_usd) / MILLION


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model that clients may name. `upstream`: what its provider calls it; `price` None: nobody has told.

    `resource`: the downstream that its calls take a permit of. Provider, model and key together have one quota.
    """

    name: str
    provider: str
    resource: str
    upstream: str | None
    upstream_env: str | None
    price: Price | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Models:
    """All of models.toml. `unpriced_usd`: what a budget is charged for a million tokens of a model without a price.

    `cheaper`: the model that is asked in place of any other while work is degraded, if there is one.
    """

    default: str
    unpriced_usd: float
    providers: Mapping[str, Provider]
    models: Mapping[str, Model]
    cheaper: str | None = None

    def cost_usd(self, model: str, tokens_in: int, tokens_out: int) -> float | None:
        """Return what a call of this model costs, in USD; None when its price is unknown. Zero tokens cost nothing.

        `model` is a name of models.toml, or a provider's own name of one.
        """
        if tokens_in == 0 and tokens_out == 0:
            return 0.0
        found = self.models.get(model) or next((one for one in self.models.values() if one.upstream == model), None)
        return found.price.cost_usd(tokens_in, tokens_out) if found and found.price else None


def parse(raw: Mapping[str, object]) -> Models:
    """Build the models from parsed TOML. Raises: Invalid naming the key."""
    _only(raw, {"default", "cheaper", "unpriced_usd_per_million_tokens", "providers", "models"}, "")
    providers = {name: _provider(name, _row(raw, "providers", name)) for name in _table(raw, "providers", "")}
    models = {name: _model(name, _row(raw, "models", name), providers) for name in _table(raw, "models", "")}
    default = raw.get("default")
    if not isinstance(default, str) or default not in models:
        _refuse("default", f"must be one of the models ({', '.join(sorted(models)) or 'there are none'})")
    cheaper = raw.get("cheaper")
    if cheaper is not None:
        if not isinstance(cheaper, str) or cheaper not in models:
            _refuse("cheaper", f"must be one of the models ({', '.join(sorted(models))}), or not be given")
        dear, price = models[default].price, models[cheaper].price
        if dear and price and price.output_usd > dear.output_usd:
            _refuse("cheaper", f"is {cheaper!r}, which costs more than the default model {default!r}")
    return Models(
        default=default,
        cheaper=cheaper,
        unpriced_usd=_usd(raw, "unpriced_usd_per_million_tokens", ""),
        providers=providers,
        models=models,
    )


def _provider(name: str, table: Mapping[str, object]) -> Provider:
    at = f"providers.{name}."
    _only(table, {"base_url", "base_url_env", "api_key_env"}, at)
    base_url, base_url_env = table.get("base_url"), _variable(table, "base_url_env", at)
    if (base_url is None) == (base_url_env is None):
        _refuse(at + "base_url", "or base_url_env must be given, and not both")
    if base_url is not None and (not isinstance(base_url, str) or not re.match(r"https?://[^\s@]+\Z", base_url)):
        _refuse(at + "base_url", "must begin with http:// or https:// and hold no user or password")
    return Provider(
        name=name,
        base_url=base_url,
        base_url_env=base_url_env,
        api_key_env=_variable(table, "api_key_env", at),
    )


def _model(name: str, table: Mapping[str, object], providers: Mapping[str, Provider]) -> Model:
    at = f"models.{name}."
    if not _NAME.fullmatch(name):
        _refuse(f"models.{name}", "must be named in letters, digits and . : / _ -")
    _only(
        table,
        {
            "provider",
            "resource",
            "upstream",
            "upstream_env",
            "input_usd_per_million_tokens",
            "output_usd_per_million_tokens",
        },
        at,
    )
    provider = table.get("provider")
    if not isinstance(provider, str) or provider not in providers:
        _refuse(at + "provider", f"must be one of {', '.join(sorted(providers)) or 'the providers: there are none'}")
    resource = table.get("resource", f"llm:{provider}")
    if not isinstance(resource, str) or not _NAME.fullmatch(resource):
        _refuse(at + "resource", "must be the name of a resource of resources.toml")
    upstream, upstream_env = table.get("upstream"), _variable(table, "upstream_env", at)
    if upstream is not None and upstream_env is not None:
        _refuse(at + "upstream", "and upstream_env can't both be given")
    if upstream is not None and (not isinstance(upstream, str) or not _NAME.fullmatch(upstream)):
        _refuse(at + "upstream", "must be the name that the provider knows the model by")
    prices = [key for key in ("input_usd_per_million_tokens", "output_usd_per_million_tokens") if key in table]
    if len(prices) == 1:
        _refuse(at + prices[0], "stands alone: give both prices, or none")
    price = Price(input_usd=_usd(table, prices[0], at), output_usd=_usd(table, prices[1], at)) if prices else None
    return Model(
        name=name,
        provider=provider,
        resource=resource,
        upstream=None if upstream_env else upstream or name,
        upstream_env=upstream_env,
        price=price,
    )


def _usd(table: Mapping[str, object], key: str, at: str) -> float:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        _refuse(at + key, f"must be a number of USD, not {value!r}")
    if not 0 <= value <= USD_MOST:
        _refuse(at + key, f"must be from 0 to {USD_MOST:,.0f} USD, not {value!r}")
    return float(value)


def _variable(table: Mapping[str, object], key: str, at: str) -> str | None:
    value = table.get(key)
    if value is None:
        return None
    # The value is not repeated: a key pasted here by mistake must not travel on in the message.
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        _refuse(at + key, "must be the name of an environment variable (the key itself never stands in this file)")
    return value


def _row(raw: Mapping[str, object], key: str, name: str) -> Mapping[str, object]:
    return _table(_table(raw, key, ""), name, f"{key}.")
