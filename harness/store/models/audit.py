"""What operators did that leaves nothing else behind: it stays when what it tells of is gone."""

from django.db import models
from django.db.models.functions import Now


class AuditEntry(models.Model):
    """One act. `subject` names its object in words and number; no reference, so that nothing takes the row along.

    `ended_at` is null while the act is under way, or was broken off.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    actor = models.TextField()
    verb = models.TextField()
    subject = models.TextField()
    subject_id = models.BigIntegerField(null=True)
    reason = models.TextField(db_default="")
    data = models.JSONField(db_default={})

    class Meta:
        db_table = "audit_entry"
        indexes = (models.Index(fields=("verb", "subject_id"), name="audit_of_subject"),)

    def __str__(self) -> str:
        return f"{self.verb} {self.subject}"
