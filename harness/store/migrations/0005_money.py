"""Budgets, and what was used by the day; an attempt's cost may be unknown."""

from typing import Any

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models
from django.db.models import Q

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/money").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0004_documents"),)
    operations = (
        migrations.AlterField("attempt", "usd", models.FloatField(db_default=0.0, null=True)),
        migrations.AddIndex(
            "attempt",
            models.Index(
                condition=Q(("tokens__gt", 0)),
                fields=["ended"],
                include=("tenant", "tokens", "usd"),
                name="attempt_spent",
            ),
        ),
        migrations.CreateModel(
            name="Budget",
            fields=[
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        serialize=False,
                        to="store.tenant",
                    ),
                ),
                ("day_usd", models.FloatField(null=True)),
                ("month_usd", models.FloatField(null=True)),
                ("soft_ratio", models.FloatField(db_default=0.8)),
                ("author", models.TextField(db_default="")),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("spent_day_usd", models.FloatField(db_default=0.0)),
                ("spent_month_usd", models.FloatField(db_default=0.0)),
                ("counted_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "budget",
                "constraints": (
                    models.CheckConstraint(
                        condition=Q(("day_usd__isnull", False), ("month_usd__isnull", False), _connector="OR"),
                        name="budget_of_some_period",
                    ),
                    models.CheckConstraint(
                        condition=Q(("day_usd__isnull", True), ("day_usd__gte", 0), _connector="OR"),
                        name="budget_day_from_0",
                    ),
                    models.CheckConstraint(
                        condition=Q(("month_usd__isnull", True), ("month_usd__gte", 0), _connector="OR"),
                        name="budget_month_from_0",
                    ),
                    models.CheckConstraint(
                        condition=Q(("soft_ratio__gt", 0), ("soft_ratio__lte", 1)), name="budget_soft_0_to_1"
                    ),
                ),
            },
        ),
        migrations.CreateModel(
            name="UsageDay",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("day", models.DateField()),
                ("attempts", models.BigIntegerField()),
                ("tokens", models.BigIntegerField()),
                ("unpriced_tokens", models.BigIntegerField()),
                ("usd", models.FloatField()),
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
                "db_table": "usage_day",
                "constraints": (models.UniqueConstraint(fields=("tenant", "day"), name="usage_day_once"),),
            },
        ),
        migrations.CreateModel(
            name="UsageMark",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("until", models.DateTimeField()),
            ],
            options={"db_table": "usage_mark"},
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
