"""Children and dependencies: what ties tasks to each other, and who is told when one ends."""

from typing import Any

import django.contrib.postgres.fields
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/children").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0024_forecasts"),)
    operations = (
        migrations.CreateModel(
            name="Dependency",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "task_id", "on_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("on_id", models.BigIntegerField()),
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
                ("met", models.BooleanField(db_default=False)),
            ],
            options={
                "db_table": "dependency",
            },
        ),
        migrations.CreateModel(
            name="Gathering",
            fields=[
                (
                    "task",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
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
                ("need", models.IntegerField()),
                ("total", models.IntegerField()),
                ("firsts", django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
                ("counts", django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)),
            ],
            options={
                "db_table": "gathering",
            },
        ),
        migrations.CreateModel(
            name="Notice",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
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
                ("down", models.BooleanField()),
            ],
            options={
                "db_table": "notice",
            },
        ),
        migrations.AddField(
            model_name="task",
            name="depends",
            field=models.BooleanField(db_default=False),
        ),
        migrations.AddField(
            model_name="task",
            name="linked",
            field=models.BooleanField(db_default=False),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                condition=models.Q(("parent_id__isnull", False)),
                fields=["parent_id", "finished_at", "id"],
                name="task_of_parent",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="task",
            trigger=pgtrigger.compiler.Trigger(
                name="task_told_to_others",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (NEW.linked AND OLD.finished_at IS NULL AND (NEW.finished_at IS NOT NULL OR OLD.state = 'running' AND NEW.state = 'paused'))",
                    func="-- Body of the trigger task_told_to_others, on tasks that are `linked`: NEW has ended, or was parked by its kind.\n-- A function's statements see what is committed now, so a child that was spawned a moment before its parent ended is seen.\n-- Needs: task_of_parent, dependency_on. Locks: dependency rows of what waits for NEW.\nIF NEW.finished_at IS NULL THEN\n    INSERT INTO notice (task_id, tenant_id, down) VALUES (NEW.id, NEW.tenant_id, false);\n    RETURN NULL;\nEND IF;\nIF NEW.parent_id IS NOT NULL THEN\n    INSERT INTO notice (task_id, tenant_id, down) VALUES (NEW.parent_id, NEW.tenant_id, false);\nEND IF;\nIF NEW.state = 'succeeded' THEN\n    UPDATE dependency SET met = true WHERE on_id = NEW.id AND NOT met;\nEND IF;\nINSERT INTO notice (task_id, tenant_id, down)\nSELECT task_id, tenant_id, NEW.state <> 'succeeded' FROM dependency WHERE on_id = NEW.id;\nIF (SELECT finished_at IS NULL FROM task WHERE parent_id = NEW.id ORDER BY finished_at DESC, id DESC LIMIT 1) THEN\n    INSERT INTO notice (task_id, tenant_id, down) VALUES (NEW.id, NEW.tenant_id, true);\nEND IF;\nRETURN NULL;\n",
                    hash="b190bac75ab8520223cf5b5eda87312b50d7ee5a",
                    operation='UPDATE OF "state", "finished_at"',
                    pgid="pgtrigger_task_told_to_others_2f09a",
                    table="task",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(("ready", False), ("depends", False), _connector="OR"),
                name="task_ready_depends_on_nothing",
            ),
        ),
        migrations.AddIndex(
            model_name="dependency",
            index=models.Index(fields=["on_id"], name="dependency_on"),
        ),
        migrations.AddIndex(
            model_name="dependency",
            index=models.Index(condition=models.Q(("met", False)), fields=["task"], name="dependency_unmet"),
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
