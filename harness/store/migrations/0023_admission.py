"""What the door goes by, what it has refused, and tasks that it has deferred."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/admission").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0022_autoscale"),)
    operations = (
        migrations.AddField(model_name="task", name="deferred", field=models.BooleanField(db_default=False)),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                fields=["pool", "priority", "signature", "tenant", "id"],
                name="task_deferred",
                condition=Q(deferred=True, not_before__isnull=False),
            ),
        ),
        migrations.CreateModel(
            name="DoorNow",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("last_task", models.BigIntegerField()),
                ("facts", models.JSONField()),
            ],
            options={"db_table": "door"},
        ),
        migrations.CreateModel(
            name="DoorAnswer",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
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
                ("pool", models.TextField()),
                ("priority", models.SmallIntegerField()),
                ("signature", models.TextField()),
                ("code", models.TextField()),
                ("reason", models.TextField()),
                ("tasks", models.IntegerField()),
                ("once", models.IntegerField()),
            ],
            options={"db_table": "door_answer"},
        ),
        migrations.AddIndex(model_name="dooranswer", index=models.Index(fields=["at"], name="door_answer_at")),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
