"""docs/reference/errors.md: the codes of problem documents with their status and meaning, and the errors of tasks."""

from collections.abc import Iterator, Mapping

from harness.policy.errors import HarnessError
from harness.policy.retry import VERDICTS

HEAD = """# Errors

Generated from the errors' own classes by `manage.py reference_doc`; don't edit.

## Of the API

An error is a problem document (RFC 9457, `application/problem+json`): `status`, `title`, `detail` (a sentence that
names what to mend), `code`, and where they apply `field`, `errors` (all that is wrong, at most 20), `retry_after_s`
(with the header `Retry-After`). Go by `code`.

| code | status | means |
|---|---|---|
"""
TASKS = """
## Of a task

The class stands in `error.class` of a task, in its trace and in its dead letter.

| class | what follows | attempts at most | why |
|---|---|---|---|
"""
# Codes that no class of ours has, or more than one thing: Django's answers, and what nobody foresaw.
PLAIN = {
    "bad_request": "The request can't be read: its host, a header, or a body that ended before its end.",
    "bad_range": "A range of bytes that the file doesn't have.",
    "internal": "Something went wrong inside Harness; it has been logged.",
    "method_not_allowed": "This path doesn't understand the method; `Allow` says which it does.",
}


def render(status: Mapping[str, int]) -> str:
    """Return the page of a table of statuses by code. Raises: KeyError for a code that nothing explains."""
    said = dict(_meanings()) | PLAIN
    rows = [
        f"| `{code}` | {number} | {said[code]} |" for code, number in sorted(status.items(), key=lambda one: one[::-1])
    ]
    tasks = [
        f"| `{name}` | {rule.verdict} | {rule.most_attempts or 'as the kind says'} | {rule.why} |"
        for name, rule in VERDICTS.items()
    ]
    return HEAD + "\n".join(rows) + "\n" + TASKS + "\n".join(tasks) + "\n"


def _meanings() -> Iterator[tuple[str, str]]:
    """Yield (code, first line of the class) of every error; of several with one code, policy's own comes last."""
    for one in sorted(_below(HarnessError), key=lambda found: (".policy." in found.__module__, found.__name__)):
        yield one.code, (one.__doc__ or "").strip().splitlines()[0].replace("|", "\\|")


def _below(one: type[HarnessError]) -> Iterator[type[HarnessError]]:
    for sub in one.__subclasses__():
        if sub.__module__.startswith("harness."):
            yield sub
            yield from _below(sub)
