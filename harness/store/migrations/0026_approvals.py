"""Questions that tasks ask people, and where a tenant hears of them."""

from typing import Any

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/approvals").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0025_children"),)
    operations = (
        migrations.CreateModel(
            name="ApprovalHook",
            fields=[
                (
                    "tenant",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="store.tenant",
                    ),
                ),
                ("url", models.TextField()),
                ("set_by", models.TextField()),
                ("set_at", models.DateTimeField()),
            ],
            options={"db_table": "approval_hook"},
        ),
        migrations.CreateModel(
            name="Approval",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("ordinal", models.IntegerField()),
                ("name", models.TextField()),
                ("prompt", models.TextField()),
                (
                    "choices",
                    django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None),
                ),
                ("timeout_s", models.FloatField(null=True)),
                ("on_timeout", models.TextField()),
                ("deny", models.TextField()),
                ("asked_at", models.DateTimeField()),
                ("deadline", models.DateTimeField(null=True)),
                ("asks", models.IntegerField(db_default=1)),
                ("open", models.BooleanField(db_default=True)),
                ("verdict", models.TextField(null=True)),
                ("choice", models.TextField(null=True)),
                ("note", models.TextField(db_default="")),
                ("decided_by", models.TextField(null=True)),
                ("decided_at", models.DateTimeField(null=True)),
                ("waited_s", models.FloatField(db_default=0.0)),
                ("notify_after", models.DateTimeField(null=True)),
                ("notify_tries", models.IntegerField(db_default=0)),
                ("notified_at", models.DateTimeField(null=True)),
                ("notify_error", models.TextField(null=True)),
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
            options={
                "db_table": "approval",
                "indexes": [
                    models.Index(condition=models.Q(("open", True)), fields=["tenant", "id"], name="approval_open"),
                    models.Index(
                        condition=models.Q(("deadline__isnull", False), ("open", True)),
                        fields=["deadline"],
                        name="approval_due",
                    ),
                    models.Index(
                        condition=models.Q(("notify_after__isnull", False)),
                        fields=["tenant", "notify_after"],
                        name="approval_notify",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("task", "ordinal"), name="approval_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("verdict__isnull", True),
                            models.Q(("open", False), ("verdict__in", ("approve", "deny"))),
                            _connector="OR",
                        ),
                        name="approval_decided_is_closed",
                    ),
                ],
            },
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
