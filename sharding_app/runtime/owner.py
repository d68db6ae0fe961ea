"""What the execution of commands needs of those around it."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import AnyMessage, Deliver
from sharding_app.core.shard import Shard, Slot
from sharding_app.ports.journal import EventRow
from sharding_app.runtime.listener import Listener
from sharding_app.runtime.threads import Threads

RAISED = BaseException
"""What the user's code may raise without ending us: `sys.exit()` in a handler is an error of that handler, and so is a
cancellation of what it awaits. Left to itself, it would end the loop or this job, and its entity stay busy for ever."""
NOBODY = ""
"""The asker of messages that no caller waits for: a timer's command, a stop message."""


def ends_job(error: BaseException, task: "asyncio.Task[Any] | None", *, cancelled: bool) -> bool:
    """Whether it is the job itself that ends: `cancelled` by its owner, or thrown away together with its loop."""
    if isinstance(error, asyncio.CancelledError):
        return cancelled
    # Thrown away, a handler sees a GeneratorExit, and may make anything of it: its own clean-up finds no loop any more.
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True


class Owner(Protocol):
    """The host, as an execution sees it."""

    listener: Listener
    threads: Threads
    closing: bool
    "The node ends: jobs that are cancelled now are to end."
    now: Callable[[], float]
    "The node's clock."

    def send(self, target: Incarnation, message: AnyMessage) -> None: ...

    def done(self, target: Incarnation, request: int) -> None:
        """A tell is handled."""

    def finished(self, slot: Slot) -> None: ...

    def again(self, slot: Slot, source: Incarnation, message: Deliver) -> None:
        """Run a command that had not begun when its object was thrown away, before any that came after it."""

    def settled(self, slot: Slot) -> None:
        """The commit of a pipelined command is done."""

    def reload(self, slot: Slot, delay: float = 0.0) -> None:
        """Throw its object away, and rebuild it after that time."""

    def restart_shard(self, shard: Shard) -> None:
        """Throw all idle objects of a shard away."""

    def fenced(self, slot: Slot) -> None:
        """The journal says that the slot's shard lives elsewhere."""

    def may_begin(self, shard: Shard) -> bool:
        """Whether something that a shard has taken in may still begin."""
        ...

    async def lease(self) -> None:
        """Wait until this node may handle something."""
        ...

    def spawn(self, job: Coroutine[Any, Any, None]) -> None: ...

    async def at_home(self, slot: Slot) -> bool:
        """Ask the store whether the slot's shard is still at home here."""
        ...


class Watch(Protocol):
    """The watchdog's note of what holds the loop (`runtime.watchdog`)."""

    running: tuple[str, str] | None
    recovering: tuple[str, str] | None


class Together(Protocol):
    """Appends rows of the journal in one transaction with a user's own writes (`persist(..., also=fn)`).

    There is at least one row: the fence looks at it, and a retry finds it. Raises what `Journal.append` raises, or what a
    function raises; then nothing of it is committed. A commit whose answer is lost is settled before it returns.
    """

    async def __call__(self, rows: Sequence[EventRow], functions: Sequence[Callable[[], object]]) -> None: ...

    async def close(self) -> None: ...
