"""Findings of the auditor, and what it and the tidying of the trace need from the server."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/audit").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0009_dead_letters"),)
    operations = (
        migrations.CreateModel(
            name="AuditFinding",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("rule", models.TextField()),
                ("level", models.TextField(choices=[("fault", "fault"), ("warning", "warning")])),
                ("subject", models.TextField()),
                ("subject_id", models.BigIntegerField(null=True)),
                ("facts", models.JSONField(db_default={})),
                ("found_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
                ("seen", models.IntegerField()),
                ("repaired_at", models.DateTimeField(null=True)),
                ("closed_at", models.DateTimeField(null=True)),
                ("how", models.TextField(db_default="")),
                (
                    "tenant",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="store.tenant",
                    ),
                ),
            ],
            options={"db_table": "audit_finding"},
        ),
        migrations.AddConstraint(
            model_name="auditfinding",
            constraint=models.UniqueConstraint(
                condition=models.Q(("closed_at", None)), fields=("rule", "subject"), name="audit_finding_open"
            ),
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
