"""What is set, seen and changed of resources. The table of overrides that nothing wrote makes way."""

from typing import Any

import django.db.models.functions
from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/resources").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0016_limits"),)
    operations = (
        migrations.DeleteModel(name="Override"),
        migrations.CreateModel(
            name="Override",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("resource", models.TextField()),
                ("field", models.TextField()),
                ("value", models.JSONField()),
                ("author", models.TextField()),
                ("reason", models.TextField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.Now())),
                ("until", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={"db_table": "override"},
        ),
        migrations.CreateModel(
            name="ResourceState",
            fields=[
                ("resource", models.TextField(primary_key=True, serialize=False)),
                ("limit_now", models.IntegerField()),
                ("proven", models.IntegerField(null=True)),
                ("mode", models.TextField(default="")),
                ("breaker", models.TextField(default="")),
                ("breaker_until", models.DateTimeField(null=True)),
                ("blocked_until", models.DateTimeField(null=True)),
                ("in_flight", models.IntegerField()),
                ("waiting", models.IntegerField()),
                ("seen_at", models.DateTimeField()),
            ],
            options={"db_table": "resource_state"},
        ),
        migrations.CreateModel(
            name="LimitChange",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("resource", models.TextField()),
                ("at", models.DateTimeField()),
                ("old", models.IntegerField(null=True)),
                ("new", models.IntegerField()),
                ("reason", models.TextField()),
                ("mode", models.TextField()),
            ],
            options={"db_table": "limit_change"},
        ),
        migrations.AddIndex(
            model_name="override",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", False)), fields=["ended_at"], name="override_over"
            ),
        ),
        migrations.AddConstraint(
            model_name="override",
            constraint=models.UniqueConstraint(
                condition=models.Q(("ended_at", None)), fields=("resource", "field"), name="override_open"
            ),
        ),
        migrations.AddIndex(
            model_name="limitchange",
            index=models.Index(fields=["resource", "at"], name="limit_change_of_resource"),
        ),
        migrations.AddIndex(model_name="limitchange", index=models.Index(fields=["at"], name="limit_change_at")),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
