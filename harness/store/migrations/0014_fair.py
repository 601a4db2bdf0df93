"""What fair release keeps: clocks of tenants and runs, credits of lanes, what leases and charges say of them.

Flows lose their rank: the leader has them in order in its memory (ADR 0015), and finds new ones by `known`.
"""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/fair").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0013_session_place"),)
    operations = (
        migrations.CreateModel(
            name="ClassCredit",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "pool", "lane", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("pool", models.TextField()),
                ("lane", models.SmallIntegerField()),
                ("credit_s", models.FloatField()),
                ("est_s", models.FloatField(null=True)),
                ("mean_s", models.FloatField(null=True)),
                ("square_s", models.FloatField(null=True)),
                ("v", models.FloatField(db_default=0.0)),
                ("at_s", models.FloatField()),
            ],
            options={
                "db_table": "class_credit",
            },
        ),
        migrations.CreateModel(
            name="Clock",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "pool",
                        "priority",
                        "tenant_id",
                        "run_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("pool", models.TextField()),
                ("priority", models.SmallIntegerField()),
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
                ("run_id", models.BigIntegerField()),
                ("v", models.FloatField()),
                ("g", models.FloatField(db_default=0.0)),
                ("at_s", models.FloatField()),
            ],
            options={
                "db_table": "clock",
            },
        ),
        migrations.RemoveIndex(
            model_name="flow",
            name="flow_in_order",
        ),
        migrations.RemoveField(
            model_name="flow",
            name="rank",
        ),
        migrations.AddField(
            model_name="charge",
            name="cost_s",
            field=models.FloatField(db_default=0.0),
        ),
        migrations.AddField(
            model_name="charge",
            name="lane",
            field=models.SmallIntegerField(db_default=1),
        ),
        migrations.AddField(
            model_name="charge",
            name="owed_s",
            field=models.FloatField(db_default=0.0),
        ),
        migrations.AddField(
            model_name="charge",
            name="priority",
            field=models.SmallIntegerField(db_default=2),
        ),
        migrations.AddField(
            model_name="flow",
            name="known",
            field=models.BooleanField(db_default=False),
        ),
        migrations.AddField(
            model_name="lease",
            name="cost",
            field=models.FloatField(db_default=1.0),
        ),
        migrations.AddField(
            model_name="lease",
            name="lane",
            field=models.SmallIntegerField(db_default=1),
        ),
        migrations.AddField(
            model_name="task",
            name="ready_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddIndex(
            model_name="flow",
            index=models.Index(condition=models.Q(("known", False)), fields=["pool"], name="flow_unknown"),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(("fanout_cap__isnull", True), ("fanout_cap__gte", 0), _connector="OR"),
                name="run_fanout_cap_from_0",
            ),
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
