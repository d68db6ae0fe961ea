"""The order in which events go to handlers that take many at a time."""

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
H = TypeVar("H")


def batches(items: Iterable[tuple[Hashable, H, T]]) -> Iterator[tuple[H, list[T]]]:
    """Group items, each with its entity and its handler, into calls: as few as possible, and each
    entity's items in their order.
    """
    pending = list(items)
    while pending:
        handler = pending[0][1]
        blocked: set[Hashable] = set()
        batch: list[T] = []
        rest: list[tuple[Hashable, H, T]] = []
        for item in pending:
            if item[1] == handler and item[0] not in blocked:
                batch.append(item[2])
            else:
                blocked.add(item[0])
                rest.append(item)
        yield handler, batch
        pending = rest
