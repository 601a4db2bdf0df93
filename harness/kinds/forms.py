"""Cheaper forms of a kind's work, as its author declares them: `@kind(degrade=[Form(...), ...])`, from mild to cheap.

Which form a task runs in is decided when it is released (policy.forms); a later attempt may run in another one. What
decides which steps come is therefore a step itself, so that an attempt in another form goes on where the last one was.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from harness.policy.errors import Invalid

FORMS_MOST = 4
_NAME = re.compile(r"[a-z][a-z0-9_]{0,29}", re.ASCII)


def same(payload: Any) -> Any:
    """Return the input as it is."""
    return payload


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """A cheaper form: what `change` makes of the checked input is what the kind gets, with the name in `ctx.form`.

    `change` returns an input of the same schema, which isn't checked again; it is asked at each attempt, of the input
    as it was sent. `resources`: what a task in this form needs, in place of all that the kind declares (`one_of` too);
    None: the same. A function is asked anew each time, and may return None.
    """

    name: str
    change: Callable[[Any], Any] = same
    resources: Mapping[str, int] | Callable[[], Mapping[str, int] | None] | None = None

    def needs(self) -> Mapping[str, int] | None:
        """Return what a task in it needs; None: what it needs as a whole."""
        return self.resources() if callable(self.resources) else self.resources

    @property
    def signature(self) -> str | None:
        """The resource signature, canonical; None: the task's own."""
        needs = self.needs()
        return None if needs is None else signature_of(needs)


def signature_of(needs: Mapping[str, int]) -> str:
    """Return the canonical signature of needs.

    >>> signature_of({"llm:default": 2, "browser": 1})
    'browser=1,llm:default=2'
    """
    return ",".join(f"{name}={n}" for name, n in sorted(needs.items()))


def check(kind: str, forms: Sequence[Form], *, bundle: bool, costs: bool) -> tuple[Form, ...]:
    """Check a kind's forms by themselves. Raises: Invalid naming the kind and what to change."""
    names = [form.name for form in forms]
    if len(forms) > FORMS_MOST:
        raise Invalid(f"kind {kind!r}: degrade: {len(forms)} forms are more than {FORMS_MOST}", field="degrade")
    for form in forms:
        at = f"kind {kind!r}: degrade: form {form.name!r}"
        if not _NAME.fullmatch(form.name):
            raise Invalid(f"{at}: its name must be a-z, 0-9 and _, and begin with a letter", field="degrade")
        if names.count(form.name) > 1:
            raise Invalid(f"{at} stands there twice", field="degrade")
        if form.change is same and form.resources is None:
            raise Invalid(f"{at} changes nothing: give it `change` or `resources`", field="degrade")
        if bundle and form.resources is not None:
            raise Invalid(f"{at}: a bundled kind needs no resources, in no form", field="degrade")
        if costs and isinstance(form.resources, Mapping) and not form.resources:
            raise Invalid(f"{at}: what costs declares the resource that it pays for", field="degrade")
    return tuple(forms)


def changed(form: Form, payload: BaseModel) -> BaseModel:
    """Return what a form makes of an input. Raises: TypeError when it isn't of the input's schema; what it raises."""
    made = form.change(payload)
    if not isinstance(made, type(payload)):
        raise TypeError(f"form {form.name!r} made a {type(made).__name__} of a {type(payload).__name__}")
    return made
