"""How many worker processes each pool should have, and every change of it. Written by store.autoscale alone."""

from django.db import models


class AdviceNow(models.Model):
    """One row a pool: what runs, what should, what would be enough this moment, what binds; what the steps know."""

    pool = models.TextField(primary_key=True)
    workers = models.IntegerField()
    desired = models.IntegerField()
    wanted = models.IntegerField()
    binds = models.TextField()
    reason = models.TextField()
    holds = models.BooleanField()
    since = models.DateTimeField()
    seen_at = models.DateTimeField()
    state = models.JSONField()

    class Meta:
        db_table = "advice"


class AdviceChange(models.Model):
    """One change of what a pool should have: from, to, what ran then, what bound it."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    pool = models.TextField()
    before = models.IntegerField()
    after = models.IntegerField()
    workers = models.IntegerField()
    binds = models.TextField()
    reason = models.TextField()

    class Meta:
        db_table = "advice_change"
        indexes = (models.Index(fields=("at",), name="advice_change_at"),)
