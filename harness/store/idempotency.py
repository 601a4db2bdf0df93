"""Idempotency keys: per tenant, route and key, what was made for which body. A refusal leaves none behind."""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.store import sql
from harness.store.database import Connection

KEEP_S = 24 * 3600.0  # unless the setting HARNESS_IDEMPOTENCY_HOURS says otherwise
Fields = Mapping[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A body as hashes: of all of it, and of each field, to name the one that differs. Key order doesn't count."""

    body_hash: str
    fields: Fields


@dataclass(frozen=True, slots=True)
class Made:
    """What a key made before: the task or run, and how its body looked."""

    public_id: uuid.UUID
    fingerprint: Fingerprint


def fingerprint(fields: Mapping[str, object], nodes: Sequence[object] | None = None) -> Fingerprint:
    """Return the fingerprint of a body, given as its fields (JSON values) and the nodes of a run."""
    whole = hashlib.sha256()
    hashes: dict[str, str | list[str]] = {}
    for name in sorted(fields):
        text = _canonical(fields[name])
        whole.update(json.dumps([name, text]).encode())
        hashes[name] = _short(text, 16)
    if nodes is not None:
        of_nodes = []
        for node in nodes:
            text = _canonical(node)
            whole.update(json.dumps(text).encode())
            of_nodes.append(_short(text, 8))
        hashes["nodes"] = of_nodes
    return Fingerprint(whole.hexdigest(), hashes)


def differing_field(old: Fields, new: Fields) -> str:
    """Return the first field in which two bodies differ.

    >>> differing_field({"kind": "a", "nodes": ["x", "y"]}, {"kind": "a", "nodes": ["x", "z"]})
    'nodes[1]'
    """
    for name in sorted({*old, *new}):
        one, other = old.get(name), new.get(name)
        if one == other:
            continue
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            return f"{name}[{next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)}]"
        return name
    return "body"


def claim(
    connection: Connection,
    *,
    tenant: int,
    route: str,
    key: str,
    fingerprint: Fingerprint,
    made: uuid.UUID,
    keep_s: float = KEEP_S,
) -> Made | None:
    """Take the key for `made`, for `keep_s` seconds, in the caller's transaction. Returns what it made before, if so.

    A key whose task or run has been removed since is free.
    """
    here: dict[str, Any] = {"tenant": tenant, "route": route, "key": key}
    while True:
        taken = connection.execute(
            sql.load("submit/claim_key"),
            here
            | {
                "body_hash": fingerprint.body_hash,
                "fields": json.dumps(fingerprint.fields),
                "made": made,
                "keep_s": keep_s,
            },
        ).fetchone()
        if taken:
            return None
        row = connection.execute(sql.load("submit/read_key"), here).fetchone()
        if row is None:
            continue  # it was tidied away between the two statements
        if row[3]:
            return Made(row[0], Fingerprint(row[1], row[2]))
        connection.execute(sql.load("submit/free_key"), here | {"made": row[0]})


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def _short(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
