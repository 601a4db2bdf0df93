"""How Sphinx builds these pages: `script/docs`. The same files are read as they are in the repository."""

import re
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

project = "Harness"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Harness"
html_copy_source = False
html_show_sphinx = False
highlight_language = "none"
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]  # samples with `..` in them are no JSON

DOCS = Path(__file__).resolve().parent
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def outside(app: Any, page: str, source: list[str]) -> None:
    """Show links to files that aren't pages (code, READMEs of kinds) as their text and path: they aren't built.

    That they lead somewhere is tested in the sources (tests/docs).
    """
    here = (DOCS / page).parent

    def shown(link: re.Match[str]) -> str:
        text, target = link[1], link[2]
        if re.match(r"[a-z]+:", target):
            return link[0]
        path = (here / target).resolve()
        if path.is_relative_to(DOCS) and path.suffix:
            return link[0]
        if path.is_relative_to(DOCS) and (path / "index.md").exists():
            return f"[{text}]({target.rstrip('/')}/index.md)"
        name = path.relative_to(DOCS.parent).as_posix()
        return f"`{name}`" if text.strip("`") in (name, path.name) else f"{text} (`{name}`)"

    source[0] = LINK.sub(shown, source[0])


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("source-read", outside)
    app.add_lexer("mermaid", TextLexer)
