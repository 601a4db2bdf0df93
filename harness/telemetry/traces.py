"""One trace a task, for OpenTelemetry: request, wait, release, claim, attempt with its steps and calls, settle.

Off unless OTEL_EXPORTER_OTLP_ENDPOINT (or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) names a collector and the extra `otel` is
installed; what is off costs a look at one name. Nothing is handed from process to process: the trace's id is the
task's public id, and its root span's the last 64 bits of that, so whoever knows the task knows the trace. Sampling goes
by the trace's id (OTEL_TRACES_SAMPLER_ARG, a share of 1), so all processes take the same tasks. Spans carry names and
numbers, never payloads, nor the words of an error: those may quote a payload.
"""

import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext, Tracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
NS = 1_000_000_000
Value = str | int | float | bool

_OFF: AbstractContextManager[None] = nullcontext()
_tracer: "Tracer | None" = None
_ids = threading.local()  # the ids of the root span that this thread is about to make


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request under way. `parent`: the traceparent that it brought; `began_ns`: since the epoch."""

    route: str
    parent: str
    began_ns: int


_asked: ContextVar[Asked | None] = ContextVar("harness_asked", default=None)


def configure(*, process: str) -> None:
    """Begin to trace in this process, if a collector is named. Raises: RuntimeError when the extra isn't installed."""
    global _tracer
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
    except ImportError:
        raise RuntimeError(
            f"{' or '.join(ENDPOINTS)} is set, but OpenTelemetry isn't installed: pip install 'harness-queue[otel]'"
        ) from None

    class Ids(RandomIdGenerator):
        """Random, but for a root span: that has the ids that everybody expects."""

        def generate_trace_id(self) -> int:
            return getattr(_ids, "trace", 0) or super().generate_trace_id()

        def generate_span_id(self) -> int:
            return getattr(_ids, "span", 0) or super().generate_span_id()

    provider = TracerProvider(
        resource=Resource.create({"service.name": f"harness-{process}"}),
        sampler=TraceIdRatioBased(float(os.environ.get("OTEL_TRACES_SAMPLER_ARG") or 1.0)),
        id_generator=Ids(),
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _tracer = provider.get_tracer("harness")


def on() -> bool:
    """Whether this process traces."""
    return _tracer is not None


def now_s() -> float:
    """Return the time of a span, by this machine's clock (epoch seconds): it is shown, and decides nothing."""
    return time.time()


@contextmanager
def request(route: str, parent: str | None) -> Iterator[None]:
    """Note a request that may bring tasks, and the traceparent of whoever asks; for `submitted`."""
    token = _asked.set(Asked(route=route, parent=parent or "", began_ns=time.time_ns()) if on() else None)
    try:
        yield
    finally:
        _asked.reset(token)


def submitted(task: uuid.UUID, **facts: Value) -> None:
    """Make the root of a task's trace: from the request that brought it to its commit, with a link to who asked."""
    if _tracer is None:
        return
    from opentelemetry.context import Context
    from opentelemetry.trace import Link

    asked = _asked.get()
    links = [Link(found)] if asked and (found := _parsed(asked.parent)) else []
    if asked is not None:
        facts["http.route"] = asked.route
    _ids.trace, _ids.span = task.int, _root_id(task)
    try:
        root = _tracer.start_span(
            "submit",
            context=Context(),
            attributes=_told(task, facts),
            links=links,
            start_time=asked.began_ns if asked else time.time_ns(),
        )
    finally:
        _ids.trace = _ids.span = 0
    root.end()


def past(task: uuid.UUID, name: str, *, began_s: float, ended_s: float, **facts: Value) -> None:
    """Make a span of what is over, beneath the task's root; epoch seconds."""
    if _tracer is not None:
        span = _tracer.start_span(
            name, context=_under(task), attributes=_told(task, facts), start_time=int(began_s * NS)
        )
        span.end(int(max(began_s, ended_s) * NS))


def span(task: uuid.UUID, name: str, **facts: Value) -> AbstractContextManager[None]:
    """Trace what is done meanwhile: beneath this thread's span of the same task, else beneath the task's root."""
    return _OFF if _tracer is None else _traced(_tracer, task, name, facts)


@contextmanager
def _traced(tracer: "Tracer", task: uuid.UUID, name: str, facts: Mapping[str, Value]) -> Iterator[None]:
    from opentelemetry import trace

    current = trace.get_current_span().get_span_context()
    with tracer.start_as_current_span(
        name,
        context=None if current.trace_id == task.int else _under(task),
        attributes=_told(task, facts),
        record_exception=False,
        set_status_on_exception=False,
    ) as made:
        try:
            yield
        except BaseException as error:
            made.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
            raise


def _under(task: uuid.UUID) -> "Context":
    from opentelemetry import trace

    root = trace.SpanContext(
        task.int, _root_id(task), is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED)
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(root))


def _root_id(task: uuid.UUID) -> int:
    """Return the id of a task's root span; 0 is none.

    >>> hex(_root_id(uuid.UUID("7d1e1f0c-8a55-4b3e-9d2a-0a7c5e9f1b2d")))
    '0x9d2a0a7c5e9f1b2d'
    """
    return (task.int & (2**64 - 1)) or 1


def _told(task: uuid.UUID, facts: Mapping[str, Value]) -> dict[str, Value]:
    return {"harness.task_id": str(task)} | {
        (key if "." in key else f"harness.{key}"): value for key, value in facts.items()
    }


def _parsed(parent: str) -> "SpanContext | None":
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    found = TraceContextTextMapPropagator().extract({"traceparent": parent})
    context = trace.get_current_span(found).get_span_context()
    return context if context.is_valid else None
