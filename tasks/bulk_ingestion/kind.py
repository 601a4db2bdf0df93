"""`ingest.folder`: every document below a folder becomes a task of its own (`ingest.document`); waits without a slot.

The folder is listed once: the list is an artifact, so that an attempt after a crash, or after the wait, works on the
same files whatever has become of the folder. How far it is, the run tells: its tasks by state.
"""

import json
from pathlib import PurePosixPath
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from harness.kinds import Child, Context, Permanent, kind
from harness.kinds.documents import SUFFIXES

FILES_MOST: Final = 10_000
TOLD_MOST: Final = 100  # failures and files left out in the result; all stand in the run, or in the list
NAME_MAX_CHARS: Final = 300  # of a document; of a longer path the end says more


class Folder(BaseModel):
    """What to ingest."""

    model_config = ConfigDict(extra="forbid")

    folder: str = Field(
        min_length=1, max_length=3_000, pattern=r"^[^\x00]*$", description="below one of HARNESS_DOCUMENT_ROOTS"
    )
    tags: list[Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[^\x00-\x1f\x7f,]+$")]] = Field(
        default_factory=list, max_length=20, description="for the filters of rag.search"
    )


class Told(BaseModel):
    """A file, and why it isn't there."""

    name: str
    why: str


class FolderIngested(BaseModel):
    """How it went. `failed` and `left_out` tell the first 100 each; `list_artifact_id` names all files."""

    files: int
    ingested: int
    failed_count: int
    failed: list[Told]
    left_out: list[Told]
    characters: int
    chunks: int
    list_artifact_id: str


@kind("ingest.folder", pool="ingest", input=Folder, output=FolderIngested, timeout_s=300, est_s=0.5)
def ingest_folder(ctx: Context, payload: Folder) -> FolderIngested:
    """Ingest every document below a folder. Raises: Permanent naming the folder when it holds none that is read."""
    # 1. Which files: once.
    list_id = ctx.step("list files", lambda: _listed(ctx, payload))
    with ctx.artifacts.open(list_id) as source:
        listed: dict[str, Any] = json.load(source)
    names: list[str] = listed["files"]
    # 2. A task each; the slot is free meanwhile.
    work = ctx.spawn("ingest.document", [_document(payload, name) for name in names], name="documents")
    children = ctx.gather(work)
    # 3. What came of it.
    failed = [
        Told(name=name, why=_why(child)) for name, child in zip(names, children, strict=True) if not child.succeeded
    ]
    done = [child.output for child in children if child.succeeded]
    return FolderIngested(
        files=len(names),
        ingested=len(done),
        failed_count=len(failed),
        failed=failed[:TOLD_MOST],
        left_out=[Told(name=name, why=why) for name, why in listed["left_out"][:TOLD_MOST]],
        characters=sum(one["characters"] for one in done),
        chunks=sum(one["chunks"] for one in done),
        list_artifact_id=list_id,
    )


def _listed(ctx: Context, payload: Folder) -> str:
    """List the folder and keep the list; returns its artifact's id."""
    found = ctx.documents.files(payload.folder, most=FILES_MOST)
    files, left_out = [], [list(one) for one in found.left_out]
    for name in found.files:
        suffix = PurePosixPath(name).suffix.lower()
        if suffix in SUFFIXES:
            files.append(name)
        else:
            left_out.append([name, f"nothing here reads {suffix or 'files without a suffix'}"])
    if not files:
        raise Permanent(f"folder: {payload.folder!r} holds no {', '.join(sorted(SUFFIXES))} file")
    content = json.dumps({"folder": payload.folder, "files": files, "left_out": sorted(left_out)}, indent=1)
    return ctx.artifacts.put("files.json", "application/json", content.encode()).id


def _document(payload: Folder, name: str) -> dict[str, Any]:
    folder = PurePosixPath(payload.folder)
    return {
        "path": str(folder / name),
        "name": str(PurePosixPath(folder.name) / name)[-NAME_MAX_CHARS:],
        "tags": payload.tags,
        "with_text": False,
    }


def _why(child: Child) -> str:
    return str((child.error or {}).get("message") or child.state)[:500]
