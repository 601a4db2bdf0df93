"""A data set of questions about two short texts, graded in all four ways."""

from typing import Any

from harness.ops.examples.example import Example, Outcome, Player

BRIDGE = (
    "The old bridge crosses the river at the mill. It was built of stone in 1721. Two floods took its middle arch, "
    "and both times the town paid for a new one. Today only people on foot may cross the bridge."
)
GARDEN = (
    "The garden opens at nine. Children pay nothing. The greenhouse holds four hundred kinds of cactus, and the oldest "
    "cactus in the greenhouse is older than the town. Dogs wait outside."
)


def _case(number: int, text: str, expect: str, grade: str, tag: str) -> dict[str, Any]:
    prompt = f"What does the text say above all? Answer in 2 sentences.\n<document>{text}</document>"
    return {"id": f"{tag}-{number}", "prompt": prompt, "expect": expect, "grade": grade, "tag": tag, "least": 0.3}


CASES = [
    _case(1, BRIDGE, "bridge", "contains", "bridge"),
    _case(2, BRIDGE, "the town paid for a new arch after both floods", "words", "bridge"),
    _case(3, BRIDGE, "The old bridge crosses the river, and only people on foot may use it.", "judge", "bridge"),
    _case(4, BRIDGE, "a railway", "contains", "bridge"),
    _case(1, GARDEN, "cactus", "contains", "garden"),
    _case(2, GARDEN, "the greenhouse holds old cactus", "words", "garden"),
    _case(3, GARDEN, "The greenhouse has the oldest cactus and four hundred kinds of it.", "judge", "garden"),
    _case(4, GARDEN, "It opens at nine.", "equals", "garden"),
]


def play(player: Player) -> Outcome:
    """Evaluate at P3 and fetch the report."""
    task = player.submit("eval.batch", {"name": "two texts", "cases": CASES}, priority=3, title="batch evaluation")
    result = player.result(task)
    groups = [f"  {one['tag']}: {one['passed']} of {one['cases']} passed" for one in result["groups"]]
    passed = f"{result['passed']} of {result['cases']} cases passed, mean score {result['score']:.2f}"
    tokens = f"{result['tokens_in']:,} tokens in and {result['tokens_out']:,} out"
    return Outcome(
        lines=(f"{passed}, {tokens}", *groups),
        files=(
            player.fetch(result["report_artifact_id"], "report.html"),
            player.fetch(result["results_artifact_id"], "results.jsonl"),
        ),
        figures={name: result[name] for name in ("cases", "passed", "score", "failed_to_answer")},
    )


EXAMPLE = Example(name="batch_evaluation", about="a data set of prompts, asked and graded at P3: a report", play=play)
