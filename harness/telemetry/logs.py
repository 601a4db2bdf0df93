"""Logging: structlog to standard error, JSON unless a person watches; one line an event, named as a past fact.

What a task's thread logs carries the task's facts (`about`), and every line with a task_id the trace_id of the task's
trace: its public id as 32 hex digits, which is what OpenTelemetry knows it by (telemetry.traces). Never payloads,
prompts or secrets.
"""

import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import structlog

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


_about: ContextVar[Mapping[str, object] | None] = ContextVar("harness_about", default=None)


@contextmanager
def about(facts: Mapping[str, object]) -> Iterator[None]:
    """Let what this thread logs meanwhile carry these facts; what a line says itself goes before."""
    token = _about.set(facts)
    try:
        yield
    finally:
        _about.reset(token)


def _with_task(_: Any, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the facts of the task at hand, and the trace_id."""
    for key, value in (_about.get() or {}).items():
        line.setdefault(key, value)
    if "task_id" in line and "trace_id" not in line:
        line["trace_id"] = trace_id(str(line["task_id"]))
    return line


def trace_id(task_id: str) -> str:
    """Return the id of a task's trace.

    >>> trace_id("7d1e1f0c-8a55-4b3e-9d2a-0a7c5e9f1b2d")
    '7d1e1f0c8a554b3e9d2a0a7c5e9f1b2d'
    """
    return task_id.replace("-", "")


def configure(level: str = "INFO", *, process: str) -> None:
    """Set logging up for this process, once, in its entry point. Other libraries' logs go the same way."""
    number = getattr(logging, level if level in LEVELS else "INFO")
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _with_task,
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
