"""What the lifeline needs and offers: its settings, what it tells the node, what the node asks of it."""

from dataclasses import dataclass
from typing import Protocol

from sharding_app.core.ids import Term
from sharding_app.core.lease import Lease
from sharding_app.core.records import Lineage, Server
from sharding_app.ports.lifeline import Pulse


@dataclass(frozen=True, slots=True, kw_only=True)
class LifelineSettings:
    ping_interval_seconds: float = 0.5
    answer_timeout_seconds: float = 2.0
    "A session that has not answered for so long is closed: what it renewed has lapsed by then."
    open_timeout_seconds: float = 3.0
    retry_seconds: float = 0.05
    "Back-off after a loss; doubles up to `retry_max_seconds`, and is shortened by up to a half, differently in each node."
    retry_max_seconds: float = 0.6
    quick_interval_seconds: float = 0.02
    quick_for_seconds: float = 1.0
    loop_stall_limit_seconds: float = 10.0


class LifelineCallbacks(Protocol):
    """Plain functions that do not wait. Of the lifeline's thread they are called on the main loop."""

    def on_valid(self) -> None:
        """The lease is valid for the first time: the node may join."""

    def on_settled(self, server: Server) -> None:
        """Both locks are held on this server: write it to the node's row. First just after `on_valid`."""

    def on_suspended(self) -> None:
        """Nothing may be handled or answered. `valid_until` has said so already."""

    def on_back(self, generation: int, settled: Server | None, lineage: Lineage) -> None:
        """Locks are held again, both of them on `settled` or one of them (None), in that lineage: say so in the node's row,
        read the rows *now*, drop what moved, then `resume(generation)`."""

    def on_elected(self, term: Term) -> None:
        """This node is the coordinator of that term."""

    def on_deposed(self) -> None:
        """The coordinator's lock is lost, or about to be given back."""

    def on_pulse(self, pulse: Pulse) -> None:
        """Each answered ping."""


class Heart(Protocol):
    """The main loop's heartbeat, as the lifeline looks at it (`runtime.watchdog`)."""

    @property
    def beat(self) -> float:
        """A number that changes while the main loop turns."""

    def report_stall(self, seconds: float) -> None:
        """Log where the main thread stands."""


class LifelineControl(Protocol):
    """What the node sees: a `Lifeline` on its own loop, or a `LifelineThread` around one."""

    @property
    def lease(self) -> Lease:
        """Only `valid_until` may be read from another thread than the lifeline's."""

    @property
    def valid_until(self) -> float: ...

    @property
    def term(self) -> Term | None:
        """Set while this node is the coordinator."""

    @property
    def refused(self) -> str:
        """Why the server takes no more sessions of the lifeline; empty where it does, or has not answered."""

    def start(self) -> None: ...

    def set_candidate(self, candidate: bool) -> None:
        """Whether to stand for coordinator. Standing down gives the lock back."""

    def told_term(self, term: Term) -> None:
        """The rows say that this is the term: who coordinates in an older one stands down."""

    def look_now(self) -> None:
        """Somebody suspects the coordinator: watch its lock closely for a while."""

    async def resign(self) -> None:
        """Stand down, and return when the coordinator's lock is given back or lost."""

    async def resume(self, generation: int) -> bool:
        """Become valid again after the rows were compared; False: lost again since, the next `on_back` will come."""

    async def stop(self) -> None:
        """Give up the lease, then the sessions and with them all locks."""
