"""Verbs: a wish to pause names whose it is, and so does the hold that it leaves."""

from django.db import migrations, models

_NAME = "task_want_known"


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
    )
