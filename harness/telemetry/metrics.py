"""The metrics that Harness exports: one line each, and the text that Prometheus reads. Pure.

Names are `harness_<thing>_<unit>`; labels come from closed sets, never a task or a tenant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One metric: its kind, what it is, its labels."""

    kind: Literal["gauge", "counter"]
    what: str
    labels: tuple[str, ...] = ()


METRICS: Mapping[str, Metric] = {
    "harness_pool_workers": Metric(
        kind="gauge", what="Worker processes that live and take work, by pool.", labels=("pool",)
    ),
    "harness_pool_workers_desired": Metric(
        kind="gauge", what="Worker processes that the pool should have.", labels=("pool",)
    ),
    "harness_pool_workers_held": Metric(
        kind="gauge",
        what="1 while no worker may be added: what stands behind the workers refuses or has too much.",
        labels=("pool",),
    ),
    "harness_autoscale_age_seconds": Metric(kind="gauge", what="Since the numbers of workers were last judged."),
}

Sample = tuple[tuple[str, ...], float]  # values of the labels, and the value


def text(samples: Mapping[str, Sequence[Sample]]) -> str:
    """Return samples in Prometheus' text format; each by a name of METRICS.

    >>> print(text({"harness_autoscale_age_seconds": [((), 2.5)]}), end="")
    # HELP harness_autoscale_age_seconds Since the numbers of workers were last judged.
    # TYPE harness_autoscale_age_seconds gauge
    harness_autoscale_age_seconds 2.5
    """
    lines = []
    for name, found in samples.items():
        metric = METRICS[name]
        lines += [f"# HELP {name} {metric.what}", f"# TYPE {name} {metric.kind}"]
        for values, value in found:
            labels = ",".join(f'{key}="{_escaped(one)}"' for key, one in zip(metric.labels, values, strict=True))
            lines.append(f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:g}")
    return "\n".join(lines) + "\n" if lines else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
