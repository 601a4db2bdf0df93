"""Schedules, and the terms (tags, words) under which tasks are found."""

from typing import Any

import django.contrib.postgres.fields
import django.contrib.postgres.functions
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/schedules").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0005_money"),)
    operations = (
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("public_id", models.UUIDField(db_default=django.contrib.postgres.functions.RandomUUID(), unique=True)),
                (
                    "tenant",
                    models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to="store.tenant"),
                ),
                ("name", models.TextField()),
                ("kind", models.TextField()),
                ("input", models.JSONField()),
                ("priority", models.SmallIntegerField(null=True)),
                ("ttl_s", models.FloatField(null=True)),
                ("title", models.TextField(db_default="")),
                (
                    "tags",
                    django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), db_default=[], size=None),
                ),
                ("cron", models.TextField()),
                ("zone", models.TextField(db_default="UTC")),
                (
                    "catch_up",
                    models.TextField(choices=[("skip", "skip"), ("one", "one"), ("all", "all")], db_default="one"),
                ),
                ("enabled", models.BooleanField(db_default=True)),
                ("stopped_because", models.TextField(null=True)),
                ("next_at", models.DateTimeField(null=True)),
                ("look_at", models.DateTimeField(null=True)),
                ("last_fired_at", models.DateTimeField(null=True)),
                ("last_task", models.UUIDField(null=True)),
                ("fired", models.BigIntegerField(db_default=0)),
                ("author", models.TextField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={"db_table": "schedule"},
        ),
        migrations.AddIndex(
            model_name="schedule",
            index=models.Index(condition=models.Q(("enabled", True)), fields=["look_at"], name="schedule_due"),
        ),
        migrations.AddIndex(
            model_name="schedule", index=models.Index(fields=["tenant", "id"], name="schedule_of_tenant")
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.UniqueConstraint(fields=("tenant", "name"), name="schedule_once"),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("enabled", False))
                | models.Q(("look_at__isnull", False), ("next_at__isnull", False)),
                name="schedule_enabled_has_next",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("catch_up__in", ("skip", "one", "all"))), name="schedule_catch_up_known"
            ),
        ),
        migrations.CreateModel(
            name="TaskTerm",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "tenant_id", "term", "task_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
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
                ("term", models.TextField()),
                (
                    "task",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="store.task",
                    ),
                ),
            ],
            options={"db_table": "task_term"},
        ),
        migrations.AddIndex(
            model_name="taskterm",
            index=django.contrib.postgres.indexes.HashIndex(fields=["task"], name="task_term_of_task"),
        ),
        migrations.AddField(model_name="taskbody", name="title", field=models.TextField(null=True)),
        migrations.AddField(
            model_name="taskbody",
            name="tags",
            field=django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), null=True, size=None),
        ),
        migrations.AddField(model_name="taskbody", name="schedule", field=models.UUIDField(null=True)),
        migrations.AddField(model_name="taskbody", name="scheduled_for", field=models.DateTimeField(null=True)),
        migrations.RemoveIndex(model_name="task", name="task_start_by"),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                condition=models.Q(("ready", True), ("start_by__isnull", False)),
                fields=["start_by"],
                name="task_start_by",
            ),
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
