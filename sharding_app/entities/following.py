"""``Auction.ref(id).events(after=n)`` and ``Auction.ref(id).current.changes()``.

Events come one by one, each once, in order and without a gap. Changes are the latest value of a
query; values in between may be left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from sharding_app.entities import gateway
from sharding_app.entities.happened import Happened
from sharding_app.errors import InvalidCall, ShardingError
from sharding_app.protocol.call import Call
from sharding_app.protocol.following import FollowedEvent

RETRY_SECONDS = 0.2
"""Pause before a query is asked again that could not be answered."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Address(Protocol):
    """What a ref tells of the entity that is followed."""

    @property
    def type_name(self) -> str: ...
    @property
    def entity_id(self) -> str: ...
    @property
    def entity_type(self) -> Any: ...


async def events(ref: Address, after: int) -> AsyncIterator[Happened[Any]]:
    """Yield the events of an entity after a number, for ever."""
    following = gateway.follow(ref.type_name, ref.entity_id)
    number, stamp = after, 0
    try:
        while True:
            found = await following.events(number, stamp)
            for happened in _decoded(ref, found):
                yield happened
            number, stamp = found[-1].seq, found[-1].at
    finally:
        following.close()


def events_sync(ref: Address, after: int, timeout: float | None) -> Iterator[Happened[Any]]:
    """Yield the events of an entity after a number, until none comes for `timeout` seconds."""
    following = gateway.follow(ref.type_name, ref.entity_id)
    number, stamp = after, 0
    try:
        while (found := following.events_sync(number, stamp, timeout)) is not None:
            yield from _decoded(ref, found)
            number, stamp = found[-1].seq, found[-1].at
    finally:
        following.close()


async def changes(
    ref: Address, decode: Callable[[bytes], Any], call: Callable[[], Call]
) -> AsyncIterator[Any]:
    """Yield the value of a query, and again whenever it is another one."""
    following = gateway.follow(ref.type_name, ref.entity_id)
    seen, shown = -1, None
    try:
        while True:
            seen = await following.moved(seen)
            while (reply := await _asked(call())) is None:  # noqa: ASYNC110  (nothing says when it can be answered)
                await asyncio.sleep(RETRY_SECONDS)
            if reply != shown:
                shown = reply
                yield decode(reply)
    finally:
        following.close()


def changes_sync(
    ref: Address, decode: Callable[[bytes], Any], call: Callable[[], Call], timeout: float | None
) -> Iterator[Any]:
    """Yield the value of a query, and again whenever it is another one, until it stays the same for
    `timeout` seconds.
    """
    following = gateway.follow(ref.type_name, ref.entity_id)
    now = time.monotonic
    seen: int | None = -1
    shown, since = None, now()
    try:
        while True:
            left = None if timeout is None else max(0.0, timeout - (now() - since))
            seen = following.moved_sync(-1 if seen is None else seen, left)
            if seen is None:
                return
            while (reply := _asked_sync(call())) is None:
                if timeout is not None and now() - since >= timeout:
                    return
                time.sleep(RETRY_SECONDS)
            if reply != shown:
                shown = reply
                yield decode(reply)
                since = now()
    finally:
        following.close()


async def _asked(call: Call) -> bytes | None:
    """Return the answer of a query; None: it cannot be answered now."""
    try:
        return await gateway.current().ask(call)
    except ShardingError as error:
        if error.retryable:
            return None
        raise


def _asked_sync(call: Call) -> bytes | None:
    try:
        return gateway.current().ask_sync(call)
    except ShardingError as error:
        if error.retryable:
            return None
        raise


def check_after(ref: Address, after: object) -> None:
    """Refuse a position that is no number of an event, and types without events."""
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < 2**63:
        raise InvalidCall(f"{ref!r}.events(after={after!r}): after is the number of an event, or 0 for all")
    entity_type = ref.entity_type
    if entity_type.kind == "event_sourced" or entity_type.proxy_only:
        return
    kind = "a durable-state entity, whose last state is stored" if entity_type.kind == "durable_state" else (
        "an in-memory entity, of which nothing is stored"
    )  # fmt: skip
    raise InvalidCall(
        f"{entity_type.cls.__qualname__} is {kind}: it has no events. Follow a query of it:"
        " ref.query_name.changes()"
    )


def _decoded(ref: Address, found: Iterable[FollowedEvent]) -> Iterator[Happened[Any]]:
    decode, ref_class = ref.entity_type.event_codec.decode, ref.entity_type.ref_class
    for each in found:
        event = decode(each.name, each.version, each.payload)
        if event is not None:
            at = _EPOCH + timedelta(microseconds=each.at)
            yield Happened(event, ref.entity_id, each.seq, at, ref.type_name, ref_class)
