"""Documents and their chunks, for full-text search."""

from typing import Any

import django.contrib.postgres.fields
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
        cursor.execute(sql.load("schema/documents").format(**role_names(database)))


class Migration(migrations.Migration):
    dependencies = (("store", "0003_artifacts"),)
    operations = (
        migrations.CreateModel(
            name="Document",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("public_id", models.UUIDField(db_default=django.contrib.postgres.functions.RandomUUID(), unique=True)),
                ("sha256", models.TextField()),
                ("name", models.TextField()),
                ("title", models.TextField()),
                ("content_type", models.TextField()),
                ("source", models.TextField(db_default="")),
                (
                    "tags",
                    django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), db_default=[], size=None),
                ),
                ("size_bytes", models.BigIntegerField()),
                ("characters", models.IntegerField()),
                ("words", models.IntegerField()),
                ("chunks", models.IntegerField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
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
                "db_table": "document",
            },
        ),
        migrations.CreateModel(
            name="Chunk",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("ordinal", models.IntegerField()),
                ("start", models.IntegerField()),
                ("stop", models.IntegerField()),
                ("text", models.TextField()),
                (
                    "marks",
                    django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None),
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
                (
                    "document",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="store.document",
                    ),
                ),
            ],
            options={
                "db_table": "chunk",
            },
        ),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(
                condition=models.Q(("source", ""), _negated=True),
                fields=["tenant", "source"],
                name="document_of_source",
            ),
        ),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(fields=["tenant", "name"], name="document_by_name"),
        ),
        migrations.AddConstraint(
            model_name="document",
            constraint=models.UniqueConstraint(fields=("tenant", "sha256"), name="document_once"),
        ),
        migrations.AddConstraint(
            model_name="chunk",
            constraint=models.UniqueConstraint(fields=("document", "ordinal"), name="chunk_once"),
        ),
        migrations.RunPython(_apply, migrations.RunPython.noop),
    )
