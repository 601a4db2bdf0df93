"""The trace's partitions, storage settings, roles and row-level security: what models can't say."""

from typing import Any

from django.db import migrations

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(sql.load("schema/events"))
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/roles").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0001_tables"), ("django_celery_results", "__latest__"))
    operations = (migrations.RunPython(_apply, migrations.RunPython.noop),)
