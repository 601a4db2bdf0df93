"""The decisions of this checkout (docs/adr) ingested, a report written from them, and approved by the player."""

from django.conf import settings

from harness.ops.examples.example import Example, Outcome, Player

QUESTION = "When does a waiting task get a slot?"
FOLDER = "docs/adr"
ANGLES = [
    {"name": "what a slot is", "search": "lease or slot"},
    {"name": "who goes first", "search": "fairness or weight or share"},
    {"name": "what holds a task back", "search": "limit or permit or pressure"},
]


def play(player: Player) -> Outcome:
    """Ingest, ask for the report, approve it when it asks, and fetch it."""
    tasks = []
    for path in sorted((settings.BASE_DIR / FOLDER).glob("*.md")):
        document = {"name": path.name, "content": path.read_text(encoding="utf-8"), "tags": ["research"]}
        tasks.append(player.submit("ingest.document", document))
    for task in tasks:
        player.result(task)
    asked = {"question": QUESTION, "angles": ANGLES, "tags": ["research"]}
    task = player.submit("report.research", asked, priority=1, title=QUESTION)
    for _ in player.looks():
        if player.client.result_of(task):
            break  # without asking: it failed
        if player.client.get(f"/tasks/{task}")["state"] == "waiting_approval":
            player.say("it asks whether to publish the report: approved")
            player.client.post(f"/tasks/{task}/approve", {"reason": "read and found good"})
            break
    result = player.result(task)
    return Outcome(
        lines=(
            f"{QUESTION} {result['decision']}, {len(result['sources'])} passages, {result['tokens_in']:,} tokens in",
        ),
        files=(
            player.fetch(result["markdown_artifact_id"], "report.md"),
            player.fetch(result["html_artifact_id"], "report.html"),
        ),
        figures={"decision": result["decision"], "sources": len(result["sources"]), "left_out": result["left_out"]},
    )


EXAMPLE = Example(
    name="research_report",
    about="a report from ingested documents: analysts in parallel, a critic, a person's yes",
    play=play,
    programs=("worker_db", "worker_cpu"),
)
