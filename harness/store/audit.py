"""What operators did that leaves no trace at a task."""

from harness.store.database import Connection


def note(connection: Connection, *, actor: str, verb: str, subject: str, reason: str) -> None:
    """Note one act that is done."""
    connection.execute(
        "INSERT INTO audit_entry (actor, verb, subject, reason, ended_at) VALUES (%s, %s, %s, %s, clock_timestamp())",
        (actor, verb, subject, reason),
    )
