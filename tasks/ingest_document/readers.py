"""Readers of HTML, Markdown and text: content in, (title, text) out; the title may be empty."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import trafilatura
from lxml import etree  # type: ignore[import-untyped]  # it has no types of its own
from markdown_it import MarkdownIt
from markdown_it.token import Token

MAIN_CHARS_MIN: Final = 250  # main content shorter than this is a fragment: trafilatura's own measure for "found"
# trafilatura's time grows with the square of the items of a list (40,000: 182 s), and only 1.2 s at 3,000.
ITEMS_MAX: Final = 3_000
ELEMENTS_MAX: Final = 20_000
_SILENT: Final = frozenset({"script", "style", "noscript", "template", "title", "svg"})
_BLOCKS: Final = frozenset(
    "address article aside blockquote br caption dd details div dl dt fieldset figcaption figure footer form h1 h2 h3"
    " h4 h5 h6 header hr li main nav ol option p pre section select summary table tbody td tfoot th thead tr ul".split()
)
# It warns of every page in which one of its ways finds nothing; what counts is here: the text that comes out.
logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")


class _Text:
    """All the text of a page in its order, and what may serve as its title.

    A target of lxml's parser, which builds no tree: depth costs nothing, and time grows with the length only
    (html.parser of the standard library takes 24 s for 240 KB of "<!--").
    """

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.titles: dict[str, list[str]] = {"title": [], "h1": []}
        self.elements = self.items = 0
        self._silent = 0
        self._titling = ""

    def start(self, tag: str, attributes: object) -> None:
        self.elements += 1
        self.items += tag == "li"
        if tag in self.titles and not self.titles[tag]:
            self._titling = tag
        if tag in _SILENT:
            self._silent += 1
        if tag in _BLOCKS:
            self.parts.append("\n")

    def end(self, tag: str) -> None:
        if tag == self._titling:
            self._titling = ""
        if tag in _SILENT and self._silent:
            self._silent -= 1
        if tag in _BLOCKS:
            self.parts.append("\n")

    def data(self, data: str) -> None:
        if self._titling:
            self.titles[self._titling].append(data)
        if not self._silent:
            self.parts.append(data)

    def close(self) -> "_Text":
        return self


def read_html(content: str) -> tuple[str, str]:
    """Return the page's main content, by trafilatura; all of its text when there is none or the page is too big."""
    page = _parsed(content)
    title = next((text for text in ("".join(page.titles[tag]).strip() for tag in ("title", "h1")) if text), "")
    if page.items > ITEMS_MAX or page.elements > ELEMENTS_MAX:
        return title, _text_of(page)
    found = trafilatura.bare_extraction(content, include_comments=False, favor_recall=True)
    main = getattr(found, "text", None) or ""
    return title, main if len(main) >= MAIN_CHARS_MIN else _text_of(page)


def text_of_html(content: str) -> tuple[str, str]:
    """Return all the text of a page, whatever is its main content."""
    page = _parsed(content)
    return "".join(page.titles["h1"]).strip(), _text_of(page)


def read_markdown(content: str) -> tuple[str, str]:
    """Return the document without its marks, blocks apart by an empty line; the title is its first heading."""
    title = ""
    blocks: list[str] = []
    cells: list[str] = []
    heading = False
    for token in _MARKDOWN.parse(content):
        match token.type:
            case "heading_open" | "heading_close":
                heading = token.type == "heading_open"
            case "td_open" | "th_open":
                cells.append("")
            case "tr_close":
                blocks.append(" | ".join(cells))
                cells = []
            case "inline":
                text = _inline(token.children or [])
                if heading:
                    title = title or text.strip()
                if cells:
                    cells[-1] = text
                else:
                    blocks.append(text)
            case "fence" | "code_block":
                blocks.append(token.content)
            case "html_block":
                blocks.append(_text_of(_parsed(token.content)))
    return title, "\n\n".join(block.rstrip() for block in blocks if block.strip())


def read_text(content: str) -> tuple[str, str]:
    """Return the text as it is; the title is its first line that isn't blank."""
    return next((line.strip() for line in content.splitlines() if line.strip()), ""), content


READERS: Final[Mapping[str, Callable[[str], tuple[str, str]]]] = {
    "text/html": read_html,
    "text/markdown": read_markdown,
    "text/plain": read_text,
}


def _parsed(content: str) -> _Text:
    page = _Text()
    parser = etree.HTMLParser(target=page, huge_tree=True)
    parser.feed(content)
    parser.close()
    return page


def _text_of(page: _Text) -> str:
    lines = (" ".join(line.split()) for line in "".join(page.parts).split("\n"))
    return "\n".join(line for line in lines if line)


def _inline(tokens: Sequence[Token]) -> str:
    return "".join(_pieces(tokens))


def _pieces(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        match token.type:
            case "text" | "code_inline" | "text_special":
                yield token.content
            case "image":
                yield _inline(token.children or [])
            case "softbreak" | "hardbreak":
                yield "\n"
