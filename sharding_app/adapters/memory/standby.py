"""The virtual server's synchronous standby: while it is away, writes are visible here and not
acknowledged.

A failover in that time goes back to the standby's state. (A real server hides a row while its
session waits, and shows it when the session is ended. This one shows a row of the journal at once,
which is stricter: only its writer reads it. Rows that the whole cluster reads, such as members and
homes, are hidden until they are acknowledged.)
"""

import copy
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import Any

from sharding_app.adapters.memory.lease_row import LeaseRow

GIVE_UP_SECONDS = 10.5
"""The same as of the real clients."""
WRITES = frozenset(
    {
        "append", "take", "save_snapshots", "trim", "forget_states", "remember", "archive", "erase", "secure",
        "stage", "discard", "set_aside", "park", "turn", "unmark", "projection", "move_rows",
    }
)  # fmt: skip
"""Requests whose commit a real server acknowledges only when its standby has it."""
HIDDEN = frozenset(
    {
        "come_back", "register_types", "join", "update_member", "leave", "locate", "ask_to", "decide", "bury", "record", "raise_term",
        "acquire_leases", "renew_leases", "release_leases", "introduce_workers", "rescale", "put_in_force",
        "restore_shards", "resize", "renumber", "refile", "begin_move", "close_shards", "renew_closings", "open_shards", "open_lapsed", "fence_shards",
        "switch_shards",
    }
)  # fmt: skip
"""The same for rows that others read: they stay hidden until they are acknowledged."""


class Standby:
    def __init__(self, tables: tuple[object, ...], leases: dict[str, LeaseRow]) -> None:
        self.away = False
        self.asynchronous = False
        "The server waits for no standby: commits that it lacks were acknowledged all the same."
        self.give_up_seconds = GIVE_UP_SECONDS
        "A client cuts its connection after this time without an answer."
        self.on_lost: Callable[[], None] | None = None
        "Called when a failover has gone back to an older state: for checks."
        self._tables = tables
        self._leases = leases
        self._copy: tuple[list[dict[str, Any]], dict[str, LeaseRow]] = ([], {})
        self._held: list[Callable[[], None]] = []

    def part(self, *, asynchronous: bool = False) -> None:
        """Cut the way to the standby: it keeps its present state, and gets nothing more."""
        if not self.away:
            self.away, self.asynchronous = True, asynchronous
            self._copy = [_stored(each) for each in self._tables], copy.deepcopy(self._leases)

    def join(self) -> None:
        """Acknowledge the held writes: the standby has caught up."""
        self.away = False
        held, self._held = self._held, []
        for acknowledge in held:
            acknowledge()

    @property
    def waited_for(self) -> bool:
        return self.away and not self.asynchronous

    def holds(self, kind: str, result: object) -> bool:
        """Tell whether the answer to a request waits for the standby. A `settle` that found a
        commit proves it by another one.
        """
        return self.waited_for and (kind in WRITES or (kind == "settle" and result is True))

    def hides(self, kind: str) -> bool:
        """Tell whether a request takes effect only when the standby is back."""
        return self.waited_for and kind in HIDDEN

    def hold(self, acknowledge: Callable[[], None]) -> None:
        self._held.append(acknowledge)

    def take_over(self) -> None:
        """Make the standby the server. Writes that it lacks are lost, and their clients wait in
        vain.
        """
        if not self.away:
            return
        self.away = False
        self._held.clear()
        tables, leases = self._copy
        for rows, stored in zip(self._tables, tables, strict=True):
            for name, value in stored.items():
                _put(rows, name, value)
        self._leases.clear()
        self._leases.update(leases)
        if self.on_lost is not None:
            self.on_lost()


def _stored(rows: object) -> dict[str, Any]:
    """Return the contents of a table: all attributes but hooks and views of others."""
    return {
        name: copy.deepcopy(value) for name, value in vars(rows).items() if not name.startswith(("_", "on_"))
    }


def _put(rows: object, name: str, value: Any) -> None:
    """Replace the contents in place: others hold the same mapping."""
    present = getattr(rows, name)
    if isinstance(present, MutableMapping):
        present.clear()
        present.update(value)
    elif isinstance(present, deque):
        present.clear()
        present.extend(value)
    else:
        setattr(rows, name, value)
