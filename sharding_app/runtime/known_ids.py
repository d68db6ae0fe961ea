"""The ids of callers' commands that were put to the journal since their entity came into memory: no need to ask it for them.

Contract: an id is *fresh* only if no attempt of the last `look_back_seconds` can have left anything in the journal: the
entity had no history when it came into memory, or that was longer ago, and the id is not among those noted since. So
many ids are kept at most, of one entity and of all; what had to be given up makes its entity known from then on only.
"""

from collections import OrderedDict
from collections.abc import Callable

from sharding_app.core.shard import Slot

OF_ONE = 1000
OF_ALL = 100_000
ALWAYS = float("-inf")


class KnownIds:
    def __init__(self, now: Callable[[], float], *, of_one: int = OF_ONE, of_all: int = OF_ALL) -> None:
        self._now = now
        self._of_one = of_one
        self._of_all = of_all
        self._kept: OrderedDict[Slot, None] = OrderedDict()
        "Those with ids, the one that got none for the longest time first."
        self.count = 0

    def loaded(self, slot: Slot) -> None:
        """An entity has come into memory; one that is only rebuilt is known as before."""
        if slot.known_since is None:
            slot.known_since = self._now() if slot.seq else ALWAYS

    def note(self, slot: Slot, command_id: str) -> None:
        """A command with this id is being put to the journal, whatever becomes of it."""
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

    def is_fresh(self, slot: Slot, command_id: str, look_back_seconds: float) -> bool:
        since = slot.known_since
        if since is None or since > self._now() - look_back_seconds:
            return False
        return slot.ids is None or command_id not in slot.ids
