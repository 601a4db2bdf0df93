"""A folder becomes a run: one `ingest.document` for each file in it, none of which is opened here.

The listing is done by who asks, web process or command, which must see the same files as the ingest workers. The kind
`ingest.folder` does the same where the workers are, as a task whose children the documents are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from harness.engine.submit import RunRequest, TaskRequest
from harness.kinds import Permanent, folders
from harness.kinds.documents import SUFFIXES
from harness.policy.errors import Invalid, Refused

KIND = "ingest.document"
NAME_MAX_CHARS = 300  # of a document; of a longer path the end says more
TITLE_MAX_CHARS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderRun:
    """The run to submit, and the files that it leaves out with the reason."""

    run: RunRequest
    left_out: tuple[tuple[str, str], ...]


def plan(
    roots: Sequence[str],
    folder: str,
    *,
    most: int,
    name: str = "",
    tags: Sequence[str] = (),
    priority: int | None = None,
    fanout_cap: int | None = None,
) -> FolderRun:
    """List a folder and return the run that ingests it. `roots`: the tenant's allowed folders.

    Raises: Refused (folder) when it lies outside of them; Invalid when it can't be listed, holds more than `most` files
    or none that a reader is there for.
    """
    try:
        listed = folders.files(roots, folder, most=most)
        root, steps = folders.place(roots, folder)
    except folders.Outside as error:
        raise Refused(_of_folder(error), field="folder") from None
    except Permanent as error:
        raise Invalid(_of_folder(error), field="folder") from None
    nodes: list[TaskRequest] = []
    left_out = list(listed.left_out)
    for one in listed.files:
        suffix = PurePosixPath(one).suffix.lower()
        if suffix not in SUFFIXES:
            left_out.append((one, f"nothing here reads {suffix or 'files without a suffix'}"))
            continue
        below = str(PurePosixPath(*steps, one))
        nodes.append(
            TaskRequest(
                kind=KIND,
                input={
                    "path": str(PurePosixPath(root) / below),
                    "name": below[-NAME_MAX_CHARS:],
                    "tags": list(tags),
                    "with_text": False,
                },
                priority=priority,
                title=_title(below),
            )
        )
    if not nodes:
        raise Invalid(f"folder: {folder!r} holds no {', '.join(sorted(SUFFIXES))} file", field="folder")
    run = RunRequest(nodes=nodes, name=name or f"ingest {_title(folder)}"[:TITLE_MAX_CHARS], fanout_cap=fanout_cap)
    return FolderRun(run=run, left_out=tuple(sorted(left_out)))


def _of_folder(error: Permanent) -> str:
    return f"folder: {str(error).removeprefix('path: ')}"


def _title(path: str) -> str:
    """The end of a path, as a title may be."""
    return "".join(letter if letter.isprintable() else "?" for letter in path)[-TITLE_MAX_CHARS:]
