"""Dead letters: when a task became one, found newest first; and what sending a task again writes."""

from typing import Any

from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/dead_letters").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0008_verbs"),)
    operations = (
        migrations.AddField(model_name="task", name="token_epoch", field=models.IntegerField(db_default=0)),
        migrations.AddField(
            model_name="task",
            name="dead_at",
            field=models.GeneratedField(
                db_persist=True,
                expression=models.Case(
                    models.When(state="failed_terminal", then=models.F("finished_at")), default=None
                ),
                output_field=models.DateTimeField(null=True),
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                condition=models.Q(("dead_at__isnull", False)), fields=["tenant", "dead_at", "id"], name="task_dead"
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                condition=models.Q(("dead_at__isnull", False)), fields=["dead_at", "id"], name="task_dead_of_all"
            ),
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
