"""The documents of the checkout, their links, headings and samples."""

import re
from collections.abc import Iterator
from pathlib import Path

FENCE = re.compile(r"(?ms)^```([a-z{}]*)[^\n]*\n(.*?)^```$")
LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")


def pages(root: Path) -> list[Path]:
    """Every document that people read."""
    found = [root / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    for folder in ("docs", "tasks", "harness", "benchmarks"):
        found += sorted((root / folder).rglob("*.md"))
    return found


def prose(page: Path) -> str:
    """The text without samples: what looks like a link there is none."""
    return re.sub(r"`[^`\n]+`", "", FENCE.sub("", page.read_text("utf-8")))


def links(page: Path) -> Iterator[tuple[str, str]]:
    """(file, anchor) of each link that isn't an address elsewhere; the file is "" for the page itself."""
    for target in LINK.findall(prose(page)):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            yield file, anchor


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    text = FENCE.sub("", page.read_text("utf-8"))
    heads = re.findall(r"(?m)^#{1,6} +(.+?) *$", text)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).lower()).replace(" ", "-")
        for head in heads
    }


def samples(page: Path, language: str) -> list[str]:
    """The fenced samples of a language ("" for none)."""
    return [text for said, text in FENCE.findall(page.read_text("utf-8")) if said == language]
