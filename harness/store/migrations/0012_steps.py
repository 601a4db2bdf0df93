"""Steps: what a task's attempts have done already."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/steps").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0011_tenant_acts"),)
    operations = (
        migrations.CreateModel(
            name="Step",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "task_id", "ordinal", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("ordinal", models.IntegerField()),
                ("key", models.TextField()),
                ("name", models.TextField()),
                ("release_no", models.IntegerField()),
                ("began_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(null=True)),
                ("begun", models.IntegerField(db_default=1)),
                ("differed_at", models.DateTimeField(null=True)),
                ("result", models.TextField(null=True)),
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
            options={"db_table": "step"},
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
