"""The level of pressure, and every change of it: written by store.pressure alone; evaluations by store.evaluations."""

from django.db import models

from harness.policy.pressure import Level

LEVELS = [(level.value, level.word) for level in Level]


class LevelNow(models.Model):
    """One row: the level, since when, when it was last evaluated; what the machine knows; the readings as they were."""

    id = models.SmallIntegerField(primary_key=True)
    level = models.SmallIntegerField(choices=LEVELS)
    since = models.DateTimeField()
    seen_at = models.DateTimeField()
    state = models.JSONField()
    readings = models.JSONField()

    class Meta:
        db_table = "level"


class LevelChange(models.Model):
    """One change: from, to, the signals that asked for it (name -> value, score), what was done."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    before = models.SmallIntegerField(choices=LEVELS)
    after = models.SmallIntegerField(choices=LEVELS)
    signals = models.JSONField()
    done = models.TextField()

    class Meta:
        db_table = "level_change"
        indexes = (models.Index(fields=("at",), name="level_change_at"),)


class Evaluation(models.Model):
    """One evaluation as it was, for charts. `kept`: longer than the others, as one of some minutes.

    `signals`: value and score by name; `resources`: limit, in use, tried, refused (policy.pressure.course); `tenants`:
    slot-seconds a second by the tenant's number.
    """

    at = models.DateTimeField(primary_key=True)
    level = models.SmallIntegerField(choices=LEVELS)
    signals = models.JSONField()
    resources = models.JSONField()
    tenants = models.JSONField()
    kept = models.BooleanField()

    class Meta:
        db_table = "evaluation"
