"""What tenants pause and resume stays in the audit too, with who and why."""

from typing import Any

from django.db import migrations

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/tenant_acts").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0010_audit"),)
    operations = (migrations.RunPython(_apply, migrations.RunPython.noop),)
