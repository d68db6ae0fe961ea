"""The types of the benchmarks exist inside this block only, and the project's own do not: neither disturbs the other."""

from collections.abc import Iterator
from contextlib import contextmanager

from sharding_app.bench.entities import TYPES
from sharding_app.model.registry import registry

PREFIX = "sharding.Bench"
"""How the names of all types begin that the benchmarks use."""
NODE_PREFIX = "n-bench"
"""How the incarnations of their nodes begin."""


@contextmanager
def only_bench_types() -> Iterator[None]:
    with registry.isolated() as own:
        for known in own.all().values():
            own.discard(known)
        for each in TYPES:
            own.add(each)
        yield
