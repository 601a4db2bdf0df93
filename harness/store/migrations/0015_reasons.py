"""Why flows wait, and how each pool stands."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/reasons").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0014_fair"),)
    operations = (
        migrations.CreateModel(
            name="PoolNow",
            fields=[
                ("pool", models.TextField(primary_key=True, serialize=False)),
                ("slots", models.IntegerField()),
                ("free", models.IntegerField()),
                ("tenants", models.IntegerField()),
                ("at", models.DateTimeField()),
            ],
            options={"db_table": "pool_now"},
        ),
        migrations.CreateModel(
            name="WaitReason",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("pool", models.TextField()),
                ("priority", models.SmallIntegerField()),
                ("run_id", models.BigIntegerField()),
                ("signature", models.TextField()),
                ("code", models.TextField()),
                ("subject", models.TextField()),
                ("facts", models.JSONField()),
                ("before", models.JSONField()),
                ("since", models.DateTimeField()),
                ("until", models.DateTimeField(null=True)),
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
            options={"db_table": "wait_reason"},
        ),
        migrations.AddIndex(
            model_name="waitreason",
            index=models.Index(
                fields=["tenant", "run_id", "pool", "priority", "signature", "since"], name="wait_reason_of_flow"
            ),
        ),
        migrations.AddIndex(
            model_name="waitreason",
            index=models.Index(condition=models.Q(("until__isnull", False)), fields=["until"], name="wait_reason_over"),
        ),
        migrations.AddConstraint(
            model_name="waitreason",
            constraint=models.UniqueConstraint(
                condition=models.Q(("until", None)),
                fields=("tenant", "run_id", "pool", "priority", "signature"),
                name="wait_reason_open",
            ),
        ),
        migrations.AddConstraint(
            model_name="waitreason",
            constraint=models.CheckConstraint(
                condition=models.Q(("until", None), ("until__gte", models.F("since")), _connector="OR"),
                name="wait_reason_until_from_since",
            ),
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
