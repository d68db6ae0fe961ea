"""Ids of callers' commands that went to the journal lately. They save look-ups."""

from collections import OrderedDict
from collections.abc import Callable

from sharding_app.runtime.journal.commits import Resident

OF_ONE = 1000
OF_ALL = 100_000
ALWAYS = float("-inf")


class KnownIds:
    def __init__(self, now: Callable[[], float], *, of_one: int = OF_ONE, of_all: int = OF_ALL) -> None:
        self._now = now
        self._of_one = of_one
        self._of_all = of_all
        self._kept: OrderedDict[Resident, None] = OrderedDict()
        "Entities with ids; the one that got no id for the longest time comes first."
        self.count = 0

    def loaded(self, slot: Resident) -> None:
        """Note that an entity has come into memory. One that is only rebuilt is known as before."""
        if slot.known_since is None:
            slot.known_since = self._now() if slot.seq else ALWAYS

    def note(self, slot: Resident, command_id: str) -> None:
        """Note that a command with this id goes to the journal, whatever its outcome."""
        ids = slot.ids
        if ids is None:
            ids = slot.ids = {}
        self._kept[slot] = None
        self._kept.move_to_end(slot)
        self.count += command_id not in ids
        ids.pop(command_id, None)
        ids[command_id] = self._now()
        if len(ids) > self._of_one:
            oldest = next(iter(ids))
            slot.known_since = ids.pop(oldest)
            self.count -= 1
        while self.count > self._of_all:
            given_up, _ = self._kept.popitem(last=False)
            self.count -= len(given_up.ids or ())
            given_up.ids = None
            given_up.known_since = self._now()

    def is_fresh(self, slot: Resident, command_id: str, look_back_seconds: float) -> bool:
        since = slot.known_since
        if since is None or since > self._now() - look_back_seconds:
            return False
        return slot.ids is None or command_id not in slot.ids
