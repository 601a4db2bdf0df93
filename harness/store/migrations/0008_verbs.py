"""Verbs: a wish to pause names whose it is, and so does the hold that it leaves; pauses end without being deleted."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names

_NAME = "task_want_known"


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/pauses").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0007_people"),)
    operations = (
        migrations.RemoveConstraint(model_name="task", name=_NAME),
        migrations.RunSQL(
            "UPDATE task SET want = 'pause:operator' WHERE want = 'pause' AND finished_at IS NULL; "
            "UPDATE task SET holds = array_replace(holds, 'pause', 'operator') WHERE holds <> '{}'",
            migrations.RunSQL.noop,
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("want__isnull", True),
                    ("want__in", ("cancel", "pause:operator", "pause:operator,tenant", "pause:tenant")),
                    _connector="OR",
                ),
                name=_NAME,
            ),
        ),
        migrations.AddField(
            model_name="pause",
            name="tenant",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="store.tenant",
            ),
        ),
        migrations.AddField(model_name="pause", name="resumed_at", field=models.DateTimeField(null=True)),
        migrations.AddField(model_name="pause", name="resumed_by", field=models.TextField(null=True)),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
