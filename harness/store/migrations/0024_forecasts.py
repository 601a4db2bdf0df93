"""What is expected of tasks and runs, and how earlier forecasts were borne out."""

from typing import Any

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/forecasts").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0023_admission"),)
    operations = (
        migrations.CreateModel(
            name="ForecastPass",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("took_s", models.FloatField()),
                ("waiting", models.IntegerField()),
                ("looked_at", models.IntegerField()),
                ("most", models.IntegerField()),
                ("trust", models.TextField()),
                ("calibration", models.JSONField()),
                ("under", models.JSONField()),
            ],
            options={
                "db_table": "forecast_pass",
            },
        ),
        migrations.CreateModel(
            name="Forecast",
            fields=[
                (
                    "task",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="store.task",
                    ),
                ),
                ("position", models.IntegerField(null=True)),
                ("start_p50", models.DateTimeField(null=True)),
                ("start_p90", models.DateTimeField(null=True)),
                ("end_p50", models.DateTimeField(null=True)),
                ("end_p90", models.DateTimeField(null=True)),
                ("reason", models.TextField()),
                ("subject", models.TextField()),
                ("moved", models.TextField()),
                ("at", models.DateTimeField()),
                (
                    "tenant",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="store.tenant",
                    ),
                ),
            ],
            options={
                "db_table": "forecast",
            },
        ),
        migrations.CreateModel(
            name="ForecastBorne",
            fields=[
                (
                    "task",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="store.task",
                    ),
                ),
                ("priority", models.SmallIntegerField()),
                ("at", models.DateTimeField()),
                ("raw_p50_s", models.FloatField()),
                ("raw_p90_s", models.FloatField()),
                ("shown_p50_s", models.FloatField(null=True)),
                ("shown_p90_s", models.FloatField(null=True)),
                ("plain_s", models.FloatField()),
                ("actual_s", models.FloatField(null=True)),
            ],
            options={
                "db_table": "forecast_borne",
                "indexes": [
                    models.Index(fields=["at"], name="forecast_borne_at"),
                    models.Index(condition=models.Q(("actual_s", None)), fields=["task"], name="forecast_borne_open"),
                ],
            },
        ),
        migrations.CreateModel(
            name="RunForecast",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="store.run",
                    ),
                ),
                ("end_p50", models.DateTimeField(null=True)),
                ("end_p90", models.DateTimeField(null=True)),
                ("reason", models.TextField()),
                ("moved", models.TextField()),
                ("at", models.DateTimeField()),
                (
                    "tenant",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="store.tenant",
                    ),
                ),
            ],
            options={
                "db_table": "run_forecast",
            },
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
