"""What is counted for the metrics: one row of totals, and what each worker process tells of its waits and calls."""

from typing import Any

from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/tally").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0027_evaluations"),)
    operations = (
        migrations.CreateModel(
            name="Tally",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("seen_at", models.DateTimeField()),
                ("took_s", models.FloatField()),
                ("mark", models.JSONField()),
                ("told", models.JSONField()),
                ("totals", models.JSONField()),
                ("stands", models.JSONField()),
            ],
            options={
                "db_table": "tally",
            },
        ),
        migrations.AddField(
            model_name="workersession",
            name="totals",
            field=models.JSONField(db_default={}),
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
