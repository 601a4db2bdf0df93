"""What the door goes by, and what it has refused. Written by store.door alone."""

from django.db import models

from harness.store.models.references import to


class DoorNow(models.Model):
    """One row: how places stand, who waits there, and how long kinds take, as sums. `last_task`: the newest id."""

    id = models.SmallIntegerField(primary_key=True)
    at = models.DateTimeField()
    last_task = models.BigIntegerField()
    facts = models.JSONField()

    class Meta:
        db_table = "door"


class DoorAnswer(models.Model):
    """Submissions that a door refused or deferred in 10 s, alike. `at`: the first of those seconds.

    `code`: deferred, or of the error; `reason`: why; `tasks`: how many; `once`: of those, whose idempotency key wasn't
    refused a moment before.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    tenant = to("store.Tenant")
    pool = models.TextField()
    priority = models.SmallIntegerField()
    signature = models.TextField()
    code = models.TextField()
    reason = models.TextField()
    tasks = models.IntegerField()
    once = models.IntegerField()

    class Meta:
        db_table = "door_answer"
        indexes = (models.Index(fields=("at",), name="door_answer_at"),)
