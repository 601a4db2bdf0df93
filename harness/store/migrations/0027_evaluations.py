"""Evaluations of the pressure as they were, for charts."""

from typing import Any

from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/evaluations").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0026_approvals"),)
    operations = (
        migrations.CreateModel(
            name="Evaluation",
            fields=[
                ("at", models.DateTimeField(primary_key=True, serialize=False)),
                (
                    "level",
                    models.SmallIntegerField(choices=[(0, "normal"), (1, "elevated"), (2, "high"), (3, "critical")]),
                ),
                ("signals", models.JSONField()),
                ("resources", models.JSONField()),
                ("tenants", models.JSONField()),
                ("kept", models.BooleanField()),
            ],
            options={"db_table": "evaluation"},
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
