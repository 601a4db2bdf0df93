"""Files of a tenant: what they are called, where their bytes are, and until when."""

from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from harness.store.models.references import to


class Artifact(models.Model):
    """A file. `state`: storing (its bytes are on their way), stored (its owner sees it), removing (bytes go, then it).

    One stored row per tenant and content; each row has a path of its own, so removing one never touches another's.
    """

    id = models.BigAutoField(primary_key=True)
    public_id = models.UUIDField(unique=True, db_default=RandomUUID())
    tenant = to("store.Tenant")
    task_id = models.BigIntegerField(null=True)
    state = models.TextField(choices=[(s, s) for s in ("storing", "stored", "removing")])
    sha256 = models.TextField()
    bytes = models.BigIntegerField()
    name = models.TextField()
    content_type = models.TextField()
    path = models.TextField(unique=True)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()

    class Meta:
        db_table = "artifact"
        indexes = (
            # A page of a tenant's list, and the sum of its bytes from the index alone.
            models.Index(fields=("tenant", "id"), include=("bytes", "state", "expires_at"), name="artifact_of_tenant"),
            models.Index(fields=("expires_at",), name="artifact_expires", condition=Q(state="stored")),
            models.Index(fields=("created_at",), name="artifact_unsettled", condition=~Q(state="stored")),
            models.Index(fields=("task_id", "id"), name="artifact_of_task", condition=Q(task_id__isnull=False)),
        )
        constraints = (
            models.UniqueConstraint(fields=("tenant", "sha256"), name="artifact_once", condition=Q(state="stored")),
            models.CheckConstraint(condition=Q(bytes__gte=0), name="artifact_bytes_from_0"),
            models.CheckConstraint(
                condition=Q(state__in=("removing", "stored", "storing")), name="artifact_state_known"
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} {self.public_id}"
