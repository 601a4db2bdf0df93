"""What is expected of tasks and runs, and how earlier forecasts were borne out. Written by store.forecasts alone."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from harness.store.models.references import one, to


class Forecast(models.Model):
    """What is expected of one task that waits or runs, as the last pass made it.

    `position`: among what waits in its pool; `reason`: why there is no range (''; else it is null); `moved`: what
    happened if the range jumped for it.
    """

    task = one("store.Task")
    tenant = to("store.Tenant")
    position = models.IntegerField(null=True)
    start_p50 = models.DateTimeField(null=True)
    start_p90 = models.DateTimeField(null=True)
    end_p50 = models.DateTimeField(null=True)
    end_p90 = models.DateTimeField(null=True)
    reason = models.TextField()
    subject = models.TextField()
    moved = models.TextField()
    at = models.DateTimeField()

    class Meta:
        db_table = "forecast"


class RunForecast(models.Model):
    """When the last task of a run is expected to end; the rest as with Forecast."""

    run = one("store.Run")
    tenant = to("store.Tenant")
    end_p50 = models.DateTimeField(null=True)
    end_p90 = models.DateTimeField(null=True)
    reason = models.TextField()
    moved = models.TextField()
    at = models.DateTimeField()

    class Meta:
        db_table = "run_forecast"


class ForecastBorne(models.Model):
    """A task's first forecast, in seconds from `at`, and the truth once it is known. `shown_..` null: withdrawn."""

    task = one("store.Task")
    priority = models.SmallIntegerField()
    at = models.DateTimeField()
    raw_p50_s = models.FloatField()
    raw_p90_s = models.FloatField()
    shown_p50_s = models.FloatField(null=True)
    shown_p90_s = models.FloatField(null=True)
    plain_s = models.FloatField()
    actual_s = models.FloatField(null=True)

    class Meta:
        db_table = "forecast_borne"
        indexes = (
            models.Index(fields=("at",), name="forecast_borne_at"),
            models.Index(fields=("task",), name="forecast_borne_open", condition=Q(actual_s=None)),
        )


class ForecastPass(models.Model):
    """One row: the last pass, what it cost and looked at, and how forecasts are borne out. For everyone."""

    id = models.SmallIntegerField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    took_s = models.FloatField()
    waiting = models.IntegerField()
    looked_at = models.IntegerField()
    most = models.IntegerField()
    trust = models.TextField()
    calibration = models.JSONField()
    under = models.JSONField()

    class Meta:
        db_table = "forecast_pass"
