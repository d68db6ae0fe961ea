"""Isolation: the benchmarks' types exist inside this block only, and the project's own do not."""

from collections.abc import Iterator
from contextlib import contextmanager

from sharding_app.bench.entities import TYPES
from sharding_app.bench.projections import declare
from sharding_app.entities.projections import projections
from sharding_app.entities.registry import registry

PREFIX = "sharding.Bench"
"""Prefix of the names of all benchmark types."""
NODE_PREFIX = "n-bench"
"""Prefix of the incarnations of their nodes."""


@contextmanager
def only_bench_types() -> Iterator[None]:
    with registry.isolated() as own, projections.isolated() as projected:
        for known in own.all().values():
            own.discard(known)
        for each in projected.all().values():
            projected.discard(each)
        for made in TYPES:
            own.add(made)
        declare()
        yield
