"""Projections: what runs the turns of their parts."""

from typing import Protocol

from sharding_app.protocol.projection.turn import Outcome


class NotReady(Exception):
    """A turn cannot be taken now: the database cannot be reached, or does not know a type yet."""


class HandlerFailed(Exception):
    """A handler has failed, and nothing of the turn was kept. The next turn has to be careful."""


class Refused(Exception):
    """The positions of a part mean nothing any more: an operator has to set it right."""


class Part(Protocol):
    """The work on one part of a projection. One turn at a time."""

    async def turn(self, part: int, parts: int, *, careful: bool) -> Outcome:
        """Take a turn: part `part` of `parts`. Raises `NotReady`, `HandlerFailed` or
        `Refused`.

        A turn that is cancelled may still be carried through.
        """
        ...

    async def tidy(self) -> None:
        """Delete what all positions have behind them. Raises `NotReady`."""
        ...

    async def close(self) -> None:
        """Give up connections and threads, without waiting for a turn under way."""
        ...
