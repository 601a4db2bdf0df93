"""The product's side of `ingest`: a folder as a run through the engine, what became of it, and searches. See drive."""

import os
import random
import re
import time
from typing import Any

import psycopg
from django.conf import settings

from benchmarks import corpus, product_client
from benchmarks.product_client import open_connection, tenant
from benchmarks.statistics_of_runs import quantile
from harness.engine import ingest_folder, submit
from harness.engine.submit import Door
from harness.kinds import folders
from harness.kinds.documents import Filters, NewDocument
from harness.policy.lifecycle import LIVE
from harness.store import documents, queries
from harness.store.database import Connection
from tasks.ingest_document.chunks import chunks
from tasks.ingest_document.cleaning import clean

CHUNKS_A_DOCUMENT = 200
WARM_SEARCHES = 20

reset = product_client.reset


def ingest(folder: str, patience_s: float) -> dict[str, Any]:
    """Ingest a folder as a run, wait until it has ended, and count what became of each document."""
    facts = tenant()
    planned = ingest_folder.plan(
        folders.roots_of(settings.HARNESS_DOCUMENT_ROOTS, facts.id), folder, most=settings.HARNESS_RUN_MAX_TASKS
    )
    door = Door(body_max_bytes=settings.HARNESS_BODY_MAX_BYTES)
    began_s = time.monotonic()
    with open_connection("web") as connection:
        accepted = submit.submit_run(door, connection, facts, planned.run, actor="bench")
        assert accepted.run_id is not None
        while True:
            with queries.as_tenant(connection, facts.id):
                run = queries.run(connection, accepted.run_id)
            assert run is not None
            if not LIVE.intersection(run.states) or time.monotonic() - began_s > patience_s:
                break
            time.sleep(0.1)
        took_s = time.monotonic() - began_s
        with queries.as_tenant(connection, facts.id):
            failed, _ = queries.tasks(
                connection, tenant=facts.id, run=accepted.run_id, state="failed_terminal", most=1000
            )
        with queries.as_tenant(connection, facts.id):
            kept = connection.execute(
                "SELECT count(*), sum(chunks), (SELECT count(*) FROM chunk) FROM document"
            ).fetchone()
    assert kept is not None
    return {
        "submitted": len(planned.run.nodes),
        "states": run.states,
        "took_s": round(took_s, 1),
        "documents": kept[0],
        "chunks": int(kept[1] or 0),
        "chunk_rows": kept[2],
        "failures": {task.title or "": str((task.error or {}).get("message", "")) for task in failed},
    }


def fill(total: int) -> dict[str, Any]:
    """Bring the tenant's chunks to `total`, from the texts that packages ship."""
    facts = tenant()
    began_s, added = time.monotonic(), 0
    with open_connection("engine") as connection:
        there = _count(connection)
        for name, text in corpus.texts():
            left = total - there - added
            if left <= 0:
                break
            pieces = chunks(clean(text))[: min(CHUNKS_A_DOCUMENT, left)]
            if not pieces:
                continue
            with connection.transaction():
                documents.put(
                    connection,
                    facts.id,
                    NewDocument(
                        sha256=f"bench {name} {added}", name=name, title=name, content_type="text/plain",
                        tags=(name[0].lower(),), characters=pieces[-1].end,
                    ),
                    pieces,
                )  # fmt: skip
            added += len(pieces)
        there = _count(connection)
    took_s = time.monotonic() - began_s
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as owner:
        owner.execute("VACUUM ANALYZE chunk")  # which autovacuum would do some time during the searches
    return {"chunks": there, "added": added, "per_s": round(added / took_s) if added else None}


def search(number: int) -> dict[str, Any]:
    """Time searches of every form, a seeded mix, each on a prepared connection; the figures are milliseconds."""
    facts = tenant()
    dice = random.Random(7)  # the same queries in each run
    with open_connection("engine") as connection:
        asked = list(_questions(connection, number + WARM_SEARCHES, dice))
        times: dict[str, list[float]] = {}
        hits = 0
        for n, (form, query, filters) in enumerate(asked):
            began_s = time.perf_counter()
            found = documents.search(connection, facts.id, query, limit=10, filters=filters)
            if n >= WARM_SEARCHES:
                times.setdefault(form, []).append((time.perf_counter() - began_s) * 1000)
                hits += bool(found.hits)
        there = _count(connection)
    every = [one for some in times.values() for one in some]
    return {
        "chunks": there,
        "searches": len(every),
        "with_hits": hits,
        "p50_ms": round(quantile(every, 0.5), 2),
        "p95_ms": round(quantile(every, 0.95), 2),
        "max_ms": round(max(every), 2),
        "p95_ms_by_form": {form: round(quantile(some, 0.95), 2) for form, some in times.items()},
    }


def _questions(connection: Connection, number: int, dice: random.Random) -> "list[tuple[str, str, Filters]]":
    """Queries made of words and phrases that stand in random chunks, and of words that stand in very many."""
    rows = connection.execute("SELECT text FROM chunk ORDER BY md5(id::text) LIMIT %s", (number,)).fetchall()
    found: list[tuple[str, str, Filters]] = []
    for (text,) in rows:
        words = re.findall(r"[A-Za-z]{3,}", text) or ["nothing"]
        some = dice.sample(words, min(3, len(words)))
        at = dice.randrange(len(words))
        form = dice.choice(("one word", "two words", "three words", "phrase", "either", "common", "filtered"))
        filters = Filters()
        match form:
            case "one word":
                query = some[0]
            case "two words":
                query = " ".join(some[:2])
            case "three words":
                query = " ".join(some)
            case "phrase":
                query = '"' + " ".join(words[at : at + 3]) + '"'
            case "either":
                query = " or ".join(some)
            case "common":
                query = dice.choice(("self", "return", "import", "value", "def", "none", "class", "name"))
            case _:
                query, filters = some[0], Filters(name_prefix=dice.choice("abcdefgt"), tags=())
        found.append((form, query, filters))
    return found


def _count(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM chunk").fetchone()
    return int(row[0]) if row else 0
