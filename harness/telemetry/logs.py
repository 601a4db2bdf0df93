"""Logging: structlog to standard error, JSON unless a person watches; one line an event, named as a past fact.

Bound to task_id, tenant, kind, pool, priority, attempt where they are known. Never payloads, prompts or secrets.
"""

import logging
import sys
from typing import Any

import structlog

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def configure(level: str = "INFO", *, process: str) -> None:
    """Set logging up for this process, once, in its entry point. Other libraries' logs go the same way."""
    number = getattr(logging, level if level in LEVELS else "INFO")
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: Any = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer(sort_keys=False)
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
            foreign_pre_chain=shared,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))


def get(name: str) -> Any:
    """Return a logger for a module."""
    return structlog.get_logger(module=name)
