"""Celery glue: worker processes that claim by lease, beat, drain and end. No decision of the engine stands here."""
