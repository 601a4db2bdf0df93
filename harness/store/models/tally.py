"""What has been counted since Harness began: the metrics' counters and histograms. Written by store.tally alone."""

from django.db import models


class Tally(models.Model):
    """One row. `totals` only grow; `mark`: how far rows were counted; `told`: what worker processes told last.

    `stands`: how things stood when the round looked; `seen_at`: when. `took_s`: what the round took.
    """

    id = models.SmallIntegerField(primary_key=True)
    seen_at = models.DateTimeField()
    took_s = models.FloatField()
    mark = models.JSONField()
    told = models.JSONField()
    totals = models.JSONField()
    stands = models.JSONField()

    class Meta:
        db_table = "tally"
