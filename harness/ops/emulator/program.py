"""The program that the provider writes when it is asked for one about a CSV: the same for the same prompt. Pure.

It sums a column of numbers by a column of text (those that the question names, else the first ones), prints the
figures, and leaves out/result.json and out/chart.svg. `[broken N]` in the question: the first N programs fail, so that
who asks has something to have mended.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_ASKED: Final = re.compile(r"<columns>\s*(\{.*?\})\s*</columns>\s*<question>(.*?)</question>", re.DOTALL)
_BROKEN: Final = re.compile(r"\[broken (\d)\]")
_MANY: Final = 50  # distinct values: more than that is no group

_PROGRAM: Final = """\
import csv
import json
from html import escape

FILE, ENCODING, DELIMITER, GROUP, VALUE = {settings}
sums, counts = {{}}, {{}}
with open(FILE, encoding=ENCODING, newline="") as file:
    for row in csv.DictReader(file, delimiter=DELIMITER):
        row = {{(name or "").strip(): value for name, value in row.items()}}
        group = (row.get(GROUP) or "").strip() if GROUP else "all"
        try:
            value = float(row[VALUE]) if VALUE else 1.0
        except (KeyError, TypeError, ValueError):
            continue
        sums[group] = sums.get(group, 0.0) + value
        counts[group] = counts.get(group, 0) + 1
ranked = sorted(sums.items(), key=lambda one: (-one[1], one[0]))[:20]
what = VALUE or "rows"
total = sum(sums.values())
print(f"The sum of {{what}} is {{total:,.2f}} over {{sum(counts.values()):,}} rows.")
if GROUP:
    print(f"The largest {{GROUP}} is {{ranked[0][0]}} with {{ranked[0][1]:,.2f}}.")
    least = min(sums, key=sums.get)
    print(f"The smallest of {{len(sums)}} values of {{GROUP}} is {{least}} with {{sums[least]:,.2f}}.")
groups = [{{"group": name, "sum": round(value, 6), "rows": counts[name]}} for name, value in ranked]
with open("out/result.json", "w", encoding="utf-8") as file:
    json.dump({{"value": VALUE, "by": GROUP, "total": round(total, 6), "groups": groups}}, file, indent=2)
most = max([abs(value) for _, value in ranked] + [1e-12])
bars = "".join(
    f'<text x="190" y="{{n * 26 + 57}}" text-anchor="end">{{escape(name[:24])}}</text>'
    f'<rect x="200" y="{{n * 26 + 42}}" width="{{abs(value) / most * 380:.1f}}" height="20" fill="#3b6ea5"/>'
    f'<text x="{{206 + abs(value) / most * 380:.1f}}" y="{{n * 26 + 57}}">{{value:,.2f}}</text>'
    for n, (name, value) in enumerate(ranked)
)
with open("out/chart.svg", "w", encoding="utf-8") as file:
    file.write(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{{len(ranked) * 26 + 60}}" '
        f'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="20" y="26" font-size="16">'
        f"{{escape(what)}} by {{escape(GROUP or 'all rows')}}</text>{{bars}}</svg>"
    )
"""


def written(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the program as a model would, in a block; None: none is asked for."""
    texts = [one["content"] for one in messages if isinstance(one.get("content"), str)]
    found = next(filter(None, map(_ASKED.search, texts)), None)
    if found is None:
        return None
    try:
        facts = json.loads(found[1])
        columns = [(str(one["name"]), str(one["type"]), int(one["distinct_in_sample"])) for one in facts["columns"]]
        settings = (str(facts["file"]), str(facts["encoding"]), str(facts["delimiter"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    question = found[2]
    broken = _BROKEN.search(question)
    before = sum(one.get("role") == "assistant" for one in messages)
    value = _chosen(question, [name for name, kind, _ in columns if kind == "number"])
    group = _chosen(question, [name for name, kind, distinct in columns if kind == "text" and distinct <= _MANY])
    text = _PROGRAM.format(settings=repr((*settings, group, value)))
    if broken and before < int(broken[1]):
        text = f"raise ValueError('program {before + 1} is broken, as the question wanted')\n"
    return f"```python\n{text}```"


def _chosen(question: str, names: list[str]) -> str | None:
    """Return the name that the question holds, else the first. None: there are none."""
    asked = question.lower()
    return next((name for name in names if name and name.lower() in asked), names[0] if names else None)
