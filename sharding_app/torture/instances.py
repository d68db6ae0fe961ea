"""Reports of every live instance, in one file to which all processes of a scenario append.

`torture.registry` judges it. Each line is one write at the end of the file, so the lines have one
order over all processes: a line that was written before another event began stands before that
event's line. No clock is needed. Words are separated by blanks:

    handles <pid> <turn> <object> <type> <entity>    an object begins to handle a message, in that
                                                     turn of its event loop
    starts <pid> <type> <shard> <epoch>              a process has become the home of a shard
    stops <pid> <type> <shard> <epoch>               it no longer is
"""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import TYPE_CHECKING

from sharding_app.entities.entity_type import EntityType
from sharding_app.signals import SignalListener

if TYPE_CHECKING:
    from sharding_app import Entity

FILE = os.environ.get("SHARDING_TORTURE_INSTANCES")
_numbers = itertools.count(1)
_turn = 0
_turn_ends = False
_file = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if FILE else None


def next_number() -> int:
    """Return the number of a new object, unlike all others of this process."""
    return next(_numbers)


def handles(entity: Entity, number: int) -> None:
    """Report that a handler begins. Called first in each handler."""
    global _turn_ends
    if not _turn_ends:
        _turn_ends = True
        asyncio.get_running_loop().call_soon(_next_turn)
    _say("handles", _turn, number, entity.context.type_name, entity.entity_id)


def _next_turn() -> None:
    global _turn, _turn_ends
    _turn, _turn_ends = _turn + 1, False


def watch_homes() -> None:
    """Report when this process becomes the home of a shard, and when it no longer is.

    Django's signals of these events come later, from a thread of their own. The report must be
    written before anything is handled there.
    """
    started, stopped = SignalListener.shard_started, SignalListener.shard_stopped

    def starts(self: SignalListener, entity_type: EntityType, shard: int, epoch: int) -> None:
        _say("starts", entity_type.name, shard, epoch)
        started(self, entity_type, shard, epoch)

    def stops(self: SignalListener, entity_type: EntityType, shard: int, epoch: int) -> None:
        _say("stops", entity_type.name, shard, epoch)
        stopped(self, entity_type, shard, epoch)

    SignalListener.shard_started = starts  # type: ignore[method-assign]
    SignalListener.shard_stopped = stops  # type: ignore[method-assign]


def _say(word: str, *rest: object) -> None:
    if _file is not None:
        os.write(_file, " ".join([word, str(os.getpid()), *map(str, rest)]).encode() + b"\n")
