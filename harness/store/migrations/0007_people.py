"""Admin: people, forms that were sent, and what role staff may do."""

from typing import Any

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

from harness.store import sql
from harness.store.database import role_names


def _apply(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
        cursor.execute(sql.load("schema/staff").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (
        ("store", "0006_time"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        # Their tables are among those that role staff works on.
        ("auth", "__latest__"),
        ("admin", "__latest__"),
        ("sessions", "__latest__"),
        ("axes", "__latest__"),
    )
    operations = (
        migrations.CreateModel(
            name="SentForm",
            fields=[
                ("token", models.UUIDField(primary_key=True, serialize=False)),
                ("sent_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), db_index=True)),
            ],
            options={"db_table": "sent_form"},
        ),
        migrations.CreateModel(
            name="Person",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="person",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="login",
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
                "verbose_name_plural": "people",
                "db_table": "person",
                "permissions": (
                    ("see_every_tenant", "Can see every tenant"),
                    ("see_tracebacks", "Can see the tracebacks of failed attempts"),
                    ("operate", "Can act on tasks"),
                ),
            },
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
