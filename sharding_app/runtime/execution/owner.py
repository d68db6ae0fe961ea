"""The interface of the host of a type, for the execution of its commands."""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from sharding_app.ports.deliveries import MessageChanges
from sharding_app.protocol.ids import Epoch, Incarnation
from sharding_app.protocol.messages import AnyMessage, Deliver
from sharding_app.protocol.shard import Work
from sharding_app.runtime.base.interfaces import Listener
from sharding_app.runtime.base.threads import Threads
from sharding_app.runtime.journal.commits import Resident, ResidentShard


class Owner(Protocol):
    """The host of a type, as the execution of its commands sees it."""

    listener: Listener
    threads: Threads
    closing: bool
    "The node ends: jobs that are cancelled now have to end."
    now: Callable[[], float]
    "The node's clock."

    def send(self, target: Incarnation, message: AnyMessage) -> None: ...

    def done(self, target: Incarnation, request: int) -> None:
        """Report that a tell is handled."""

    def finished(self, slot: Resident) -> None: ...

    def again(self, slot: Resident, source: Incarnation, message: Deliver) -> None:
        """Run a command whose object was dropped before it began, ahead of all later ones."""

    def ask_again(self, slot: Resident, queries: Sequence[Work]) -> None:
        """Run queries whose object was dropped, in their order, ahead of all later commands. Those
        without room are refused.
        """

    def waits(self, source: Incarnation, message: Deliver) -> None:
        """Note that an envelope waits."""

    def taken(self, source: Incarnation, message: Deliver) -> None:
        """Note that an envelope does not wait any more."""

    def settled(self, slot: Resident) -> None:
        """Note that the commit of a pipelined command is done."""

    def reload(self, slot: Resident, delay: float = 0.0) -> None:
        """Drop the entity's object, and rebuild it after `delay` seconds."""

    def restart_shard(self, shard: ResidentShard) -> None:
        """Drop all idle objects of a shard."""

    def fenced(self, slot: Resident) -> None:
        """Drop the slot's shard: the journal says that it lives elsewhere."""

    def may_begin(self, shard: ResidentShard) -> bool:
        """Whether a message that a shard has taken in may still begin."""
        ...

    async def lease(self) -> None:
        """Wait until this node may handle messages."""
        ...

    def spawn(self, job: Coroutine[Any, Any, None]) -> None: ...

    def new_message_id(self) -> str:
        """Return the id of a new message or timer."""
        ...

    def new_message_place(self, epoch: Epoch, many: int) -> tuple[int, int]:
        """Return the `seq` and the first `position` for `many` messages of an entity without
        events. They come behind all that it has sent before.
        """
        ...

    def storing(self, changes: MessageChanges) -> AbstractContextManager[None]:
        """Deliver none of these messages while their store may have to be repeated."""
        ...

    def server_time(self) -> datetime:
        """Return a time that the journal's server has reached; `know_server_time` comes first."""
        ...

    @property
    def knows_server_time(self) -> bool: ...

    async def know_server_time(self) -> None: ...

    def staged(self, slot: Resident, changes: MessageChanges, at: datetime | None) -> None:
        """Deliver what the entity has committed; `at`: the server's time then, if known."""

    def changed(self, slot: Resident) -> None:
        """Tell followers that the state of an in-memory entity may have changed."""

    async def at_home(self, slot: Resident) -> bool:
        """Ask the journal whether the slot's shard is still at home here, until it answers or the
        shard has gone.
        """
        ...
