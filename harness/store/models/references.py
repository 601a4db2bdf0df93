"""References to hot tables: numbers without a constraint (ADR 0004)."""

from django.db import models


def to(model: str) -> "models.ForeignKey[models.Model, models.Model]":
    """A reference to a hot table: no constraint, no index of its own."""
    return models.ForeignKey(model, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")


def maybe(model: str) -> "models.ForeignKey[models.Model | None, models.Model | None]":
    """The same, where there may be none."""
    return models.ForeignKey(model, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+", null=True)


def one(model: str) -> "models.OneToOneField[models.Model, models.Model]":
    """The row beside a row of a hot table, under the same id; no constraint."""
    return models.OneToOneField(model, models.DO_NOTHING, db_constraint=False, related_name="+", primary_key=True)
