"""The report of an evaluation: one HTML page with its chart inside, which loads nothing from anywhere. Pure."""

from collections.abc import Sequence
from html import escape

from tasks.batch_evaluation.payload import Case, Evaluated, Graded, Group

SHOWN_MOST = 200  # cases in the table: those that failed first; all stand in the results
EXCERPT_CHARS = 300
BAR_PX = 420
ROW_PX = 28

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2430}"
    "table{border-collapse:collapse;width:100%}"
    "td,th{border-bottom:1px solid #d8dde5;padding:.35rem .5rem;text-align:left;vertical-align:top}"
    "td{overflow-wrap:anywhere}.no{color:#b3261e}.yes{color:#1b6e3c}svg text{font:13px system-ui,sans-serif}"
    "@media(prefers-color-scheme:dark){body{background:#14181f;color:#e6eaf0}td,th{border-color:#39424f}"
    ".no{color:#ff8a80}.yes{color:#7bd89b}}"
)


Result = tuple[int, Graded]  # by the number of its case in the data set


def groups(cases: Sequence[Case], graded: Sequence[Result]) -> list[Group]:
    """Return the figures by tag, in the order of the tags' names."""
    by_tag: dict[str, list[Graded]] = {}
    for index, one in graded:
        by_tag.setdefault(cases[index].tag, []).append(one)
    return [
        Group(
            tag=tag,
            cases=len(found),
            passed=sum(one.passed for one in found),
            score=round(sum(one.score for one in found) / len(found), 4),
        )
        for tag, found in sorted(by_tag.items())
    ]


def chart(found: Sequence[Group]) -> str:
    """Return a bar for each group: the share that passed, with its numbers beside it, as SVG."""
    width, height = 190 + BAR_PX + 130, ROW_PX * len(found) + 10
    rows = []
    for number, group in enumerate(found):
        y, share = 5 + number * ROW_PX, group.passed / group.cases
        name = escape((group.tag or ("others" if len(found) > 1 else "all"))[:24])
        rows.append(
            f'<text x="180" y="{y + 17}" text-anchor="end" fill="currentColor">{name}</text>'
            f'<rect x="190" y="{y + 3}" width="{BAR_PX}" height="20" fill="#9aa5b5" opacity="0.35"/>'
            f'<rect x="190" y="{y + 3}" width="{share * BAR_PX:.1f}" height="20" fill="#2f6fde"/>'
            f'<text x="{200 + BAR_PX}" y="{y + 17}" fill="currentColor">'
            f"{group.passed} of {group.cases} ({share:.0%})</text>"
        )
    told = ", ".join(f"{group.tag or 'all'} {group.passed}/{group.cases}" for group in found)
    label = f"share that passed, by tag: {told}"
    return (
        f'<svg role="img" aria-label="{escape(label, quote=True)}" viewBox="0 0 {width} {height}" width="100%" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(rows)}</svg>'
    )


def html(name: str, cases: Sequence[Case], graded: Sequence[Result], outcome: Evaluated) -> str:
    """Return the page."""
    worst_first = sorted(graded, key=lambda one: (one[1].score, one[0]))[:SHOWN_MOST]
    rows = "".join(_row(index, cases[index], one) for index, one in worst_first)
    notes = [f"{outcome.tokens_in:,} tokens in, {outcome.tokens_out:,} out"]
    if outcome.left_out:
        notes.append(f"{outcome.left_out:,} cases were left out")
    if outcome.failed_to_answer:
        notes.append(f"{outcome.failed_to_answer:,} got no answer")
    if len(graded) > SHOWN_MOST:
        notes.append(f"the table shows the {SHOWN_MOST} worst")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(name)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(name)}</h1>"
        f"<p><strong>{outcome.passed:,} of {outcome.cases:,} passed</strong>, mean score {outcome.score:.2f}; "
        f"{escape('; '.join(notes))}.</p>{chart(outcome.groups)}"
        "<table><thead><tr><th>case</th><th>score</th><th>expected</th><th>answer</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></body></html>\n"
    )


def _row(index: int, case: Case, one: Graded) -> str:
    verdict = "yes" if one.passed else "no"
    answer = one.answer if not one.error else f"no answer: {one.error}"
    return (
        f"<tr><td>{escape(case.id or str(index + 1))}</td>"
        f'<td class="{verdict}">{one.score:.2f} {"passed" if one.passed else "failed"}</td>'
        f"<td>{escape(case.expect[:EXCERPT_CHARS])}</td><td>{escape(answer[:EXCERPT_CHARS])}</td></tr>"
    )
