"""The metrics that Harness exports: one entry each, and the text that Prometheus reads. Pure but for its library.

Names are `harness_<thing>_<unit>`, those of the source document where it has one. Labels come from closed sets, never a
task: a pool, a kind, a priority (0 to 3), a resource, a reason; tenants are the 20 that use most, and `other`.
Counters and histograms are totals since Harness began, whichever process is asked (engine.tally).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from harness.policy.tally import PASSAGE_S, PEOPLE_S, TASK_S, Labels, Values

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
Samples = Mapping[str, Mapping[Labels, Values]]  # by name: the values of the labels, and the value (or the histogram's)


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """One metric: its kind, what it is, its labels; a histogram's bounds. A counter's name ends in `_total`."""

    kind: Literal["gauge", "counter", "histogram"]
    what: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


def _gauge(what: str, *labels: str) -> Described:
    return Described(kind="gauge", what=what, labels=labels)


def _counter(what: str, *labels: str) -> Described:
    return Described(kind="counter", what=what, labels=labels)


def _histogram(what: str, bounds: tuple[float, ...], *labels: str) -> Described:
    return Described(kind="histogram", what=what, labels=labels, bounds=bounds)


METRICS: Mapping[str, Described] = {
    # The line
    "harness_queue_depth_by_priority": _gauge("Tasks that are ready and wait for a slot.", "pool", "priority"),
    "harness_queue_depth_age_seconds": _gauge("Since what is in line was counted last: the more there is, the rarer."),
    "harness_oldest_job_age_seconds": _gauge("How long the first ready task has waited.", "pool", "priority"),
    "harness_tasks_later": _gauge("Tasks that aren't due: planned, deferred by the door, postponed, or to be retried."),
    "harness_tasks_held": _gauge("Tasks that are paused."),
    "harness_approvals_open": _gauge("Questions that wait for a person."),
    "harness_dead_letters": _gauge("Dead letters that are kept."),
    # What becomes of tasks
    "harness_tasks_submitted_total": _counter("Tasks that were taken in.", "pool", "priority"),
    "harness_tasks_ended_total": _counter(
        "Tasks that ended, by the state that they ended in.", "pool", "priority", "state"
    ),
    "harness_attempts_ended_total": _counter("Attempts that ended, by what ended them.", "pool", "kind", "verdict"),
    "harness_task_wait_time_seconds": _histogram(
        "From when a task might run to its first start; counted when its first attempt ends.",
        TASK_S,
        "pool",
        "priority",
    ),
    "harness_task_run_time_seconds": _histogram("How long attempts held their slot.", TASK_S, "pool", "kind"),
    "harness_approval_wait_time_seconds": _histogram(
        "How long a question was open, counted when somebody decides it.", PEOPLE_S
    ),
    "harness_approvals_decided_total": _counter("Questions that were approved, denied, or left too long.", "verdict"),
    "harness_retry_count_total": _counter(
        "Attempts that failed and are made again, by the class of the error.", "pool", "priority", "error"
    ),
    "harness_dead_letter_count_total": _counter(
        "Tasks that failed for good, by the class of the last error, or `expired`.", "pool", "reason"
    ),
    "harness_redrives_total": _counter("Ended tasks that were sent again.", "pool"),
    "harness_cancellation_rate": _gauge("Cancelled tasks, of all that ended in the last 10 minutes (0 to 1)."),
    # Workers
    "harness_slots": _gauge("Slots of live workers that don't drain.", "pool"),
    "harness_in_flight": _gauge("Slots that are taken: leases.", "pool"),
    "harness_tasks_in_flight": _gauge("Tasks on those leases; more than leases where short ones share a slot.", "pool"),
    "harness_worker_utilization": _gauge("Slots that run something, of all (0 to 1).", "pool"),
    "harness_zombies": _gauge("Slots that are held by a thread which can't be stopped.", "pool"),
    "harness_pool_workers": _gauge("Worker processes that live and take work.", "pool"),
    "harness_desired_workers": _gauge("Worker processes that the pool should have.", "pool"),
    "harness_pool_workers_held": _gauge(
        "1 while no worker may be added: what stands behind the workers refuses or has too much.", "pool"
    ),
    "harness_autoscale_age_seconds": _gauge("Since the numbers of workers were last judged."),
    # Downstreams
    "harness_resource_limit": _gauge("How much of a resource may be used at once now.", "resource"),
    "harness_resource_in_flight": _gauge("How much of it is in use.", "resource"),
    "harness_resource_waiting": _gauge("Calls that wait for a permit.", "resource"),
    "harness_resource_age_seconds": _gauge("Since the resource was last looked at.", "resource"),
    "harness_breaker": _gauge("1 for the state of a resource's breaker, 0 for the others.", "resource", "state"),
    "harness_provider_calls_total": _counter(
        "Calls by what came of them: `success`, `ignore`, `drop`; of those `429`, `timeout`, `failure`, `overload`; "
        "beside them `granted` and `waited`, of their permits.",
        "resource",
        "outcome",
    ),
    "harness_permit_wait_time_seconds": _histogram(
        "How long calls waited for a permit that they got.", PASSAGE_S, "resource"
    ),
    "harness_http_pool_wait_seconds": _histogram("How long calls waited for a connection.", PASSAGE_S, "resource"),
    "harness_db_pool_wait_seconds": _histogram(
        "How long tasks waited for a connection to a target database.", PASSAGE_S, "resource"
    ),
    # Pressure and the door
    "harness_backpressure_level": _gauge("The level of pressure: 0 normal, 1 elevated, 2 high, 3 critical."),
    "harness_backpressure_age_seconds": _gauge("Since the level was last judged."),
    "harness_backpressure_signal": _gauge("What a signal of pressure reads (seconds or a ratio).", "signal"),
    "harness_backpressure_signal_level": _gauge("The level that this signal asks for (0 to 3).", "signal"),
    "harness_backpressure_trigger_count_total": _counter("Rises of the level, by the level reached.", "level"),
    "harness_submissions_held_off_total": _counter(
        "Tasks that the door deferred or refused, by the answer's code.", "code", "priority"
    ),
    # Tenants
    "harness_tenant_fairness": _gauge("1 minus Jain's index of the service to tenants that wait (0: fair)."),
    "harness_tenant_in_flight": _gauge("Tasks in flight.", "tenant"),
    "harness_tenant_waiting": _gauge("Tasks that are ready and wait.", "tenant"),
    "harness_tenant_tasks_submitted_total": _counter("Tasks that were taken in.", "tenant"),
    "harness_tenant_slot_seconds_total": _counter("Slot-seconds that were used.", "tenant"),
    # Harness itself
    "harness_dispatcher_lag_seconds": _gauge(
        "Since the leading dispatcher last renewed its lead; it does each second, and above 4 nobody leads."
    ),
    "harness_audit_findings": _gauge("Open findings of the auditor.", "rule", "level"),
    "harness_eta_coverage": _gauge(
        "Tasks that started by the start that was foretold, of all (0 to 1); a good P50 covers 0.5, a P90 0.9.",
        "quantile",
    ),
    "harness_eta_error_ratio": _gauge("Error of forecasts over that of backlog over rate; below 1 they are better."),
    "harness_eta_age_seconds": _gauge("Since forecasts were last made."),
    "harness_tally_age_seconds": _gauge("Since all of this was last counted; above 30 the figures are old."),
    "harness_tally_took_seconds": _gauge("What the last count took."),
}


class _Collected:
    """What one scrape found, as the library wants it."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        """Give each metric that has a value."""
        for name, described in METRICS.items():
            if found := self._samples.get(name):
                yield _family(name, described, found)


def text(samples: Samples) -> str:
    """Return samples in Prometheus' text format; each by a name of METRICS.

    >>> print(text({"harness_tasks_held": {(): [2.0]}}), end="")
    # HELP harness_tasks_held Tasks that are paused.
    # TYPE harness_tasks_held gauge
    harness_tasks_held 2.0
    """
    unknown = samples.keys() - METRICS.keys()
    if unknown:
        raise KeyError(f"not in METRICS: {', '.join(sorted(unknown))}")
    return generate_latest(_Collected(samples)).decode()


def _family(name: str, described: Described, found: Mapping[Labels, Sequence[float]]) -> Metric:
    match described.kind:
        case "gauge":
            gauge = GaugeMetricFamily(name, described.what, labels=described.labels)
            for labels, values in sorted(found.items()):
                gauge.add_metric(labels, values[0])
            return gauge
        case "counter":
            counter = CounterMetricFamily(name, described.what, labels=described.labels)
            for labels, values in sorted(found.items()):
                counter.add_metric(labels, values[0])
            return counter
        case "histogram":
            histogram = HistogramMetricFamily(name, described.what, labels=described.labels)
            for labels, values in sorted(found.items()):
                histogram.add_metric(labels, _cumulative(described.bounds, values), values[-1])
            return histogram


def _cumulative(bounds: tuple[float, ...], values: Sequence[float]) -> list[tuple[str, float]]:
    found, n = [], 0.0
    for bound, here in zip((*bounds, float("inf")), values[:-1], strict=True):
        n += here
        found.append(("+Inf" if bound == float("inf") else str(bound), n))
    return found
