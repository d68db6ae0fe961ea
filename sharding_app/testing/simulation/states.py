"""The journal of entities that keep no events: each new token in a state stands for an event.

So one journal serves both kinds, and the promises that look at it need not know an entity's kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sharding_app.adapters.memory.journal_rows import Committed
from sharding_app.ports.journal import EventRow
from sharding_app.runtime.journal.durable_state import STATE
from sharding_app.testing.simulation import promises
from sharding_app.testing.simulation.promises import Entry, PromiseBroken


def is_state(row: EventRow) -> bool:
    return row.name == STATE


def tokens_of(row: EventRow) -> list[str]:
    """Return the tokens of a state."""
    return list(msgspec.json.decode(row.payload)["tokens"])


class States:
    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        "The number of the last row of each entity that keeps its state."

    def stored(self, entity: str, row: EventRow, entries: Sequence[Entry], now: float) -> list[Entry]:
        """Check promises 3 and 4 when a state is stored.

        Return an entry for each token that is new in it.
        """
        last = self._rows.get(entity, 0)
        if row.seq != last + 1:
            raise PromiseBroken(4, "no_gaps", f"state {row.seq} follows state {last}", entity)
        self._rows[entity] = row.seq
        state = tokens_of(row)
        promises.state_holds_what_was_stored(entity, entries, state)
        return [
            Entry(number, row.epoch, token, now)
            for number, token in enumerate(state[len(entries) :], len(entries) + 1)
        ]

    def went_back(self, entity: str, left: Mapping[int, Committed], entries: Sequence[Entry]) -> list[Entry]:
        """Note that a promotion has taken the last states away.

        Return the entries that are left.
        """
        self._rows[entity] = max(left, default=0)
        return list(entries[: len(tokens_of(left[max(left)].row))]) if left else []

    def keeps(self, entity: str) -> bool:
        """Whether it has stored states, and no events."""
        return entity in self._rows
