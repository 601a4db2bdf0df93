"""The level of pressure, and its changes."""

from typing import Any

from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names

LEVELS = [(0, "normal"), (1, "elevated"), (2, "high"), (3, "critical")]


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/pressure").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0018_session_waits"),)
    operations = (
        migrations.CreateModel(
            name="LevelNow",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("level", models.SmallIntegerField(choices=LEVELS)),
                ("since", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
                ("state", models.JSONField()),
                ("readings", models.JSONField()),
            ],
            options={"db_table": "level"},
        ),
        migrations.CreateModel(
            name="LevelChange",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("before", models.SmallIntegerField(choices=LEVELS)),
                ("after", models.SmallIntegerField(choices=LEVELS)),
                ("signals", models.JSONField()),
                ("done", models.TextField()),
            ],
            options={"db_table": "level_change"},
        ),
        migrations.AddIndex(model_name="levelchange", index=models.Index(fields=["at"], name="level_change_at")),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
