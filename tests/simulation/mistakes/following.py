"""Followers of entities, and what a home tells them."""

from __future__ import annotations

from typing import Any

from sharding_app.ports.journal import Reading
from sharding_app.protocol.ids import Epoch
from sharding_app.runtime.hosting import following
from sharding_app.runtime.hosting.following import Following
from tests.simulation.mistakes.mistake import Mistake


def _without_the_second(real: Any) -> Any:
    def tell(self: Following, followed: Any, after: int, events: bool, reading: Reading) -> None:
        kept = [*reading.events[:1], *reading.events[2:]]
        real(self, followed, after, events, reading._replace(events=kept))

    return tell


def _of_all_bits(_: Any) -> Any:
    def number_of_change(epoch: Epoch, count: int) -> int:
        return (epoch << following.COUNT_BITS) + count

    return number_of_change


FOLLOWING: dict[str, Mistake] = {
    "followers_miss_an_event": Mistake((19,), Following, "_tell", _without_the_second),
    "changes_have_too_large_numbers": Mistake((19,), following, "number_of_change", _of_all_bits),
}
