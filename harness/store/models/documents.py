"""What was ingested: documents and their chunks. Written by store.documents alone.

The chunk's search vector is a column that the database generates (sql/schema/documents.sql); Django doesn't see it.
"""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from harness.store.models.references import to


class Document(models.Model):
    """A document of a tenant; its content (`sha256`) is there once. `source`: the path or address it was read from."""

    id = models.BigAutoField(primary_key=True)
    public_id = models.UUIDField(unique=True, db_default=RandomUUID())
    tenant = to("store.Tenant")
    sha256 = models.TextField()
    name = models.TextField()
    title = models.TextField()
    content_type = models.TextField()
    source = models.TextField(db_default="")
    tags = ArrayField(models.TextField(), db_default=[])
    size_bytes = models.BigIntegerField()
    characters = models.IntegerField()
    words = models.IntegerField()
    chunks = models.IntegerField()
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "document"
        constraints = (models.UniqueConstraint(fields=("tenant", "sha256"), name="document_once"),)
        indexes = (
            models.Index(fields=("tenant", "source"), name="document_of_source", condition=~Q(source="")),
            models.Index(fields=("tenant", "name"), name="document_by_name"),
        )

    def __str__(self) -> str:
        return self.name


class Chunk(models.Model):
    """A piece of a document's clean text: its characters `start` to `stop`. Goes with its document.

    `marks`: what filters ask for, copied from the document (name, type, tags), as lexemes of the search vector.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = to("store.Tenant")
    document = to("store.Document")
    ordinal = models.IntegerField()
    start = models.IntegerField()
    stop = models.IntegerField()
    text = models.TextField()
    marks = ArrayField(models.TextField())

    class Meta:
        db_table = "chunk"
        constraints = (models.UniqueConstraint(fields=("document", "ordinal"), name="chunk_once"),)
