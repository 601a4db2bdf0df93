"""What operators did that leaves nothing else behind, and what the auditor found.

An entry stays when what it tells of is gone. A finding is written by store.findings alone.
"""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from harness.store.models.references import maybe


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


class AuditFinding(models.Model):
    """One fault of one subject, found by one rule of engine.audit. Open until `closed_at`.

    `repaired_at`: when the auditor repaired it; closed without: it went away by itself. `how` says what was done.
    `level`: fault (an invariant is broken) or warning (people should look).
    """

    id = models.BigAutoField(primary_key=True)
    rule = models.TextField()
    level = models.TextField(choices=[(level, level) for level in ("fault", "warning")])
    subject = models.TextField()
    subject_id = models.BigIntegerField(null=True)
    tenant = maybe("store.Tenant")
    facts = models.JSONField(db_default={})
    found_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    seen = models.IntegerField()
    repaired_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    how = models.TextField(db_default="")

    class Meta:
        db_table = "audit_finding"
        constraints = (
            models.UniqueConstraint(fields=("rule", "subject"), name="audit_finding_open", condition=Q(closed_at=None)),
        )

    def __str__(self) -> str:
        return f"{self.rule} {self.subject}"
