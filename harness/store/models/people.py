"""Who inspects and operates: what a login is tied to, and forms that were sent."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from harness.store.models.references import to


class Person(models.Model):
    """What Harness knows of a login. `tenant`: it sees and acts on this tenant only.

    The tie has no constraint: when the tenant is deleted, the login is left with nothing to see, not with everything.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="person", verbose_name="login"
    )
    tenant = to("store.Tenant")

    class Meta:
        db_table = "person"
        verbose_name_plural = "people"
        permissions = (
            ("see_every_tenant", "Can see every tenant"),
            ("see_tracebacks", "Can see the tracebacks of failed attempts"),
            ("operate", "Can act on tasks"),
        )

    def __str__(self) -> str:
        return f"{self.user_id} of tenant {self.tenant_id}"


class SentForm(models.Model):
    """A form that was sent: its token is taken once, so a double click is one action."""

    token = models.UUIDField(primary_key=True)
    sent_at = models.DateTimeField(db_default=Now(), db_index=True)

    class Meta:
        db_table = "sent_form"
