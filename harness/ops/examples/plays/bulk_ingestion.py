"""The documents of this checkout's docs/, ingested as a run that tells how far it is, and searched afterwards."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from django.conf import settings

from harness.ops.examples.example import Example, Outcome, Player

FOLDER = "docs"
QUERY = "lease token"


@contextmanager
def _around() -> Iterator[Mapping[str, str]]:
    yield {"HARNESS_DOCUMENT_ROOTS": str(settings.BASE_DIR / FOLDER)}


def play(player: Player) -> Outcome:
    """Ingest, tell each change of the run's counts, and search."""
    node = {"kind": "ingest.folder", "input": {"folder": player.around["HARNESS_DOCUMENT_ROOTS"], "tags": ["docs"]}}
    made = player.client.post("/runs", {"name": "bulk ingestion", "nodes": [node | {"title": "docs"}]})
    (task,) = made["task_ids"]
    said = ""
    for _ in player.looks():
        run = player.client.get(f"/runs/{made['run_id']}")
        line = ", ".join(f"{n} {state}" for state, n in sorted(run["states"].items()))
        if line != said:
            player.say(line)
            said = line
        if player.client.result_of(task):
            break
    result = player.result(task)
    found = player.result(player.submit("rag.search", {"query": QUERY, "limit": 3, "tags": ["docs"]}, priority=1))
    counts = f"{result['ingested']} of {result['files']} documents, {result['chunks']:,} chunks"
    return Outcome(
        lines=(
            f"{counts}, {result['characters']:,} characters; {len(result['left_out'])} files left out",
            f"searched for {QUERY!r}:",
            *[f"  {hit['name']}: {' '.join(hit['snippet'].split())[:120]}" for hit in found["hits"]],
        ),
        files=(player.keep("ingested.json", result),),
        figures={name: result[name] for name in ("files", "ingested", "chunks", "failed_count")},
    )


EXAMPLE = Example(
    name="bulk_ingestion",
    about="a folder of documents ingested as a run with progress, then searched",
    play=play,
    programs=("worker_db", "worker_cpu"),
    around=_around,
)
