"""Artifacts with a tenant's quota for them, the audit of operators' acts, and the end of the trace's old days."""

from typing import Any

import django.contrib.postgres.functions
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/artifacts").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0002_events_and_roles"),)
    operations = (
        migrations.CreateModel(
            name="Artifact",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("public_id", models.UUIDField(db_default=django.contrib.postgres.functions.RandomUUID(), unique=True)),
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
                ("task_id", models.BigIntegerField(null=True)),
                (
                    "state",
                    models.TextField(choices=[("storing", "storing"), ("stored", "stored"), ("removing", "removing")]),
                ),
                ("sha256", models.TextField()),
                ("bytes", models.BigIntegerField()),
                ("name", models.TextField()),
                ("content_type", models.TextField()),
                ("path", models.TextField(unique=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("expires_at", models.DateTimeField()),
            ],
            options={
                "db_table": "artifact",
                "indexes": [
                    models.Index(
                        fields=["tenant", "id"], include=("bytes", "state", "expires_at"), name="artifact_of_tenant"
                    ),
                    models.Index(fields=["expires_at"], name="artifact_expires", condition=models.Q(state="stored")),
                    models.Index(fields=["created_at"], name="artifact_unsettled", condition=~models.Q(state="stored")),
                    models.Index(
                        fields=["task_id", "id"], name="artifact_of_task", condition=models.Q(task_id__isnull=False)
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant", "sha256"), name="artifact_once", condition=models.Q(state="stored")
                    ),
                    models.CheckConstraint(condition=models.Q(bytes__gte=0), name="artifact_bytes_from_0"),
                    models.CheckConstraint(
                        condition=models.Q(state__in=("removing", "stored", "storing")), name="artifact_state_known"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("ended_at", models.DateTimeField(null=True)),
                ("actor", models.TextField()),
                ("verb", models.TextField()),
                ("subject", models.TextField()),
                ("subject_id", models.BigIntegerField(null=True)),
                ("reason", models.TextField(db_default="")),
                ("data", models.JSONField(db_default={})),
            ],
            options={
                "db_table": "audit_entry",
                "indexes": [models.Index(fields=["verb", "subject_id"], name="audit_of_subject")],
            },
        ),
        migrations.AddField(
            model_name="tenant",
            name="artifact_quota_bytes",
            field=models.BigIntegerField(db_default=10737418240),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(artifact_quota_bytes__gte=0), name="tenant_artifact_quota_from_0"
            ),
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
