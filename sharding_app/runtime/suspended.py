"""What waits at a host while the node's lease is lost: entities with more to handle, and jobs in the middle of something."""

import asyncio
from typing import TYPE_CHECKING

from sharding_app.core.shard import Slot

if TYPE_CHECKING:
    from sharding_app.runtime.host import Host


class Suspended:
    def __init__(self, host: "Host") -> None:
        self._host = host
        self._parked: list[tuple[Slot, int]] = []
        "Busy slots whose next envelope waits for the lease, and their generation: a rebuilt one goes on by itself."
        self._jobs: list[asyncio.Future[None]] = []
        self._loop = asyncio.get_running_loop()

    def park(self, slot: Slot) -> None:
        """Let a busy entity go on with its mailbox later."""
        self._parked.append((slot, slot.generation))

    def back(self) -> "asyncio.Future[None]":
        """Done when the lease has become valid again; whoever waits looks whether it still is."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._jobs.append(future)
        return future

    def resume(self) -> None:
        """The lease is valid again: go on with what waited for it."""
        parked, self._parked = self._parked, []
        for slot, generation in parked:
            if slot.generation == generation and slot.shard.slots.get(slot.id) is slot:
                self._host.finished(slot)
        waiting, self._jobs = self._jobs, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
