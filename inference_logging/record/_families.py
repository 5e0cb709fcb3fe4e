"""The metric families of the native core as prometheus_client's, for registries of the application's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from prometheus_client.core import Exemplar, Metric

Family: TypeAlias = tuple[
    str, str, str, str, list[tuple[str, list[tuple[str, str]], float, tuple[str, str, float, float] | None]]
]
"""Name, kind, unit, help and samples; of a sample what follows the name, labels, value, and exemplar."""


def metrics(families: Iterable[Family]) -> Iterator[Metric]:
    """Yield each family, its samples in their order."""
    for name, kind, unit, meaning, samples in families:
        metric = Metric(name, meaning, kind, unit)
        for suffix, labels, value, exemplar in samples:
            metric.add_sample(name + suffix, dict(labels), value, exemplar=_exemplar(exemplar))
        yield metric


def _exemplar(exemplar: tuple[str, str, float, float] | None) -> Exemplar | None:
    if exemplar is None:
        return None
    trace_id, span_id, value, unix_s = exemplar
    return Exemplar({"trace_id": trace_id, "span_id": span_id}, value, unix_s)
