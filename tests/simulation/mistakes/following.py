"""Followers of entities, and what a home tells them."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from sharding_app.ports.journal import Reading
from sharding_app.protocol.ids import Epoch
from sharding_app.runtime.hosting import following
from sharding_app.runtime.hosting.following import Following
from tests.simulation.mistakes.mistake import Mistake

LOOK_SECONDS = 0.05


def _without_the_second(real: Any) -> Any:
    def tell(self: Following, followed: Any, after: int, events: bool, reading: Reading) -> None:
        kept = [*reading.events[:1], *reading.events[2:]]
        real(self, followed, after, events, reading._replace(events=kept))

    return tell


def _of_all_bits(_: Any) -> Any:
    def number_of_change(epoch: Epoch, count: int) -> int:
        return (epoch << following.COUNT_BITS) + count

    return number_of_change


def _of_the_first(real: Any) -> Any:
    def tell(self: Following, followed: Any, after: int, events: bool, reading: Reading) -> None:
        """Tell each event with the payload of the first one."""
        kept = [structs.replace(each, payload=reading.events[0].payload) for each in reading.events]
        real(self, followed, after, events, reading._replace(events=kept))

    return tell


def _all_that_is_visible(real: Any) -> Any:
    def tell(self: Following, followed: Any, after: int, events: bool, reading: Reading) -> None:
        """Look for events now and then, and tell all that are stored, acknowledged or not."""
        followed.last = max(followed.last or 0, reading.last)
        real(self, followed, after, events, reading)
        if followed.waiters:
            self._loop.call_later(LOOK_SECONDS, self._again, [followed])

    return tell


def _compared_with_the_newest(real: Any) -> Any:
    def tell(self: Following, followed: Any, after: int, events: bool, reading: Reading) -> None:
        """Take a follower's last event for another one than the journal's if there are later
        ones.
        """
        real(self, followed, after, events, reading._replace(known=reading.newest or reading.known))

    return tell


FOLLOWING: dict[str, Mistake] = {
    "followers_miss_an_event": Mistake((19,), Following, "_tell", _without_the_second),
    "changes_have_too_large_numbers": Mistake((19,), following, "number_of_change", _of_all_bits),
    "followers_get_the_first_payload": Mistake((19,), Following, "_tell", _of_the_first),
    "followers_see_what_is_not_acknowledged": Mistake((19,), Following, "_tell", _all_that_is_visible),
    "followers_are_compared_with_the_newest": Mistake((19,), Following, "_tell", _compared_with_the_newest),
}
