"""A CSV of sales and a question: the model writes Python, the sandbox runs it, figures and a chart come back."""

import io
from collections.abc import Iterator

from harness.kinds import sandbox
from harness.ops.examples.example import Example, Outcome, Player

ROWS = 20_000
QUESTION = "Which region has the highest revenue, and how far behind is the last one?"
_REGIONS = ("north", "south", "east", "west", "overseas")
_PRODUCTS = ("bolts", "nuts", "washers")


def play(player: Player) -> Outcome:
    """Upload, ask, wait, and fetch what the program left."""
    lines = io.StringIO()
    lines.writelines(_rows())
    upload = player.client.upload("sales.csv", lines.getvalue().encode(), "text/csv")
    player.say(f"sales.csv: {ROWS:,} rows, {len(lines.getvalue()):,} bytes")
    found = player.result(player.submit("csv.analyse", {"question": QUESTION, "artifact_id": upload}))
    files = tuple(player.fetch(one["artifact_id"], one["name"]) for one in found["files"])
    return Outcome(
        lines=(f"question: {QUESTION}", f"answer:   {found['answer']}"),
        files=files,
        figures={name: found[name] for name in ("answer", "printed", "programs", "model", "tokens_in", "tokens_out")},
    )


def _rows() -> Iterator[str]:
    """Yield the same sales each time."""
    yield "day,region,product,pieces,revenue\n"
    for n in range(ROWS):
        region = _REGIONS[(n * n + n // 7) % len(_REGIONS)]
        pieces = 1 + (n * 7_919) % 40
        price = 100 + 25 * (n % 3) + 10 * _REGIONS.index(region)
        yield f"2026-{1 + n % 12:02}-{1 + n % 28:02},{region},{_PRODUCTS[n % 3]},{pieces},{pieces * price / 100:.2f}\n"


EXAMPLE = Example(
    name="csv_analysis",
    about="a question about a CSV: the model writes Python, the sandbox runs it, figures and a chart come back",
    play=play,
    missing=sandbox.lack,
)
