"""The composition root: settings, the Celery app, URLs and resources.toml. Nobody imports it."""
