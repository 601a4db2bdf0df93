"""How many worker processes each pool should have, and the changes of it."""

from typing import Any

from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/autoscale").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0021_degrade"),)
    operations = (
        migrations.CreateModel(
            name="AdviceNow",
            fields=[
                ("pool", models.TextField(primary_key=True, serialize=False)),
                ("workers", models.IntegerField()),
                ("desired", models.IntegerField()),
                ("wanted", models.IntegerField()),
                ("binds", models.TextField()),
                ("reason", models.TextField()),
                ("holds", models.BooleanField()),
                ("since", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
                ("state", models.JSONField()),
            ],
            options={"db_table": "advice"},
        ),
        migrations.CreateModel(
            name="AdviceChange",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("pool", models.TextField()),
                ("before", models.IntegerField()),
                ("after", models.IntegerField()),
                ("workers", models.IntegerField()),
                ("binds", models.TextField()),
                ("reason", models.TextField()),
            ],
            options={"db_table": "advice_change"},
        ),
        migrations.AddIndex(model_name="advicechange", index=models.Index(fields=["at"], name="advice_change_at")),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
