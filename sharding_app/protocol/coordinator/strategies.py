"""Calls the types' strategies, and goes on without one that fails: it costs its own type and no
other (promise 10).

A user's strategy sees the shards through `Offered`, which is read-only. An exception, an impossible
answer and time beyond its budget are failures. The default strategy then chooses the shard's home.
A rebalance that fails moves nothing, since moves by another strategy would only be moved back. One
line is noted for each of the two questions, again after an hour; each failure is counted.
"""

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Set
from typing import TypeVar

from sharding_app.protocol.allocation.consistent_hashing import ConsistentHashAllocation
from sharding_app.protocol.allocation.external import ExternalAllocation
from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from sharding_app.protocol.allocation.singleton import OldestAllocation
from sharding_app.protocol.allocation.strategy import (
    Candidates,
    ClusterView,
    Offered,
    ShardAllocationStrategy,
)
from sharding_app.protocol.allocation.threshold import ThresholdAllocation
from sharding_app.protocol.ids import Incarnation, ShardId

T = TypeVar("T")

BUDGET_SECONDS = 1.0
"""Time that a strategy may hold the coordinator's event loop within a window: entities live there
too."""
WINDOW_SECONDS = 10.0
REST_SECONDS = 60.0
"""Pause after a strategy exceeded its budget."""
SAY_AGAIN_SECONDS = 3600.0
OWN = frozenset(
    (
        ConsistentHashAllocation,
        ExternalAllocation,
        LeastShardAllocation,
        OldestAllocation,
        ThresholdAllocation,
    )
)
"""The strategies of this package: their answers are not checked, nor is their time counted."""

_DEFAULT = LeastShardAllocation()


class _Failed(Exception):
    """A failure of a strategy, in words that name no shard: failures of one kind read the same."""


class Strategies:
    def __init__(
        self,
        strategy_of: Callable[[str], ShardAllocationStrategy],
        clock: Callable[[], float],
        note: Callable[[str, str, str], None],
    ) -> None:
        self.failures: Counter[str] = Counter()
        "Number of failures by type."
        self._failing: dict[str, tuple[str, str]] = {}
        "Types whose strategy failed at its last call: the question, and how."
        self._strategy_of = strategy_of
        self._clock = clock
        self._note = note
        self._said: dict[tuple[str, str], float] = {}
        self._windows: dict[str, tuple[float, float]] = {}
        "By type: the start of its window, and the time spent in it."
        self._resting: dict[str, float] = {}

    @property
    def failing(self) -> dict[str, str]:
        """Types whose strategy failed at its last call, and how."""
        return {name: f"{question} {text}" for name, (question, text) in self._failing.items()}

    def of(self, type_name: str) -> ShardAllocationStrategy:
        try:
            return self._strategy_of(type_name)
        except Exception as error:  # noqa: BLE001  (a user's code: its errors concern this type alone)
            self._failed(type_name, "strategy", _told(error))
            return _DEFAULT

    def wants_locations(self, type_name: str) -> bool:
        """Tell whether the strategy of the type asks where the application wants its shards."""
        try:
            return getattr(self._strategy_of(type_name), "wants_locations", False) is True
        except Exception as error:  # noqa: BLE001
            self._failed(type_name, "wants_locations", _told(error))
            return False

    def allocate(
        self,
        type_name: str,
        requester: Incarnation | None,
        shard: ShardId,
        hosts: Candidates,
        view: ClusterView,
    ) -> Incarnation:
        """Choose one of `hosts`, of which there is at least one."""
        strategy = self.of(type_name)
        if _is_own(strategy):
            return strategy.allocate(requester, shard, hosts, view)

        def ask() -> Incarnation:
            home: object = strategy.allocate(requester, shard, Offered(hosts), view)
            if not isinstance(home, str) or home not in hosts:
                raise _Failed(_nonsense(home, "an incarnation among `allocations`"))
            return home

        home = self._ask(type_name, "allocate", ask)
        return _DEFAULT.allocate(requester, shard, hosts, view) if home is None else home

    def rebalance(
        self, type_name: str, hosts: Candidates, in_progress: Set[ShardId], view: ClusterView
    ) -> list[ShardId]:
        """Choose which shards move now."""
        strategy = self.of(type_name)
        allocations = {each: tuple(sorted(shards)) for each, shards in hosts.items()}
        if _is_own(strategy):
            return strategy.rebalance(allocations, in_progress, view)

        def ask() -> list[ShardId]:
            chosen: object = strategy.rebalance(dict(allocations), frozenset(in_progress), view)
            if isinstance(chosen, str | bytes) or not isinstance(chosen, Collection):
                raise _Failed(_nonsense(chosen, "a list of shards"))
            moves = list(chosen)
            known = {shard for shards in allocations.values() for shard in shards}
            for each in moves:
                if type(each) is not int or each not in known:
                    raise _Failed(_nonsense(each, "a shard among `allocations`"))
            return moves

        return self._ask(type_name, "rebalance", ask) or []

    # -- Inside ------------------------------------------------------------------------------------

    def _ask(self, type_name: str, question: str, ask: Callable[[], T]) -> T | None:
        """Return the strategy's answer; None: it has none that counts."""
        began = self._clock()
        if self._resting.get(type_name, began) > began:
            self.failures[type_name] += 1
            return None
        self._resting.pop(type_name, None)
        answer = None
        try:
            answer = ask()
        except _Failed as error:
            self._failed(type_name, question, str(error))
        except Exception as error:  # noqa: BLE001
            self._failed(type_name, question, _told(error))
        else:
            if self._failing.get(type_name, ("",))[0] == question:
                del self._failing[type_name]
        self._count(type_name, question, began)
        return answer

    def _count(self, type_name: str, question: str, began: float) -> None:
        now = self._clock()
        since, spent = self._windows.get(type_name, (began, 0.0))
        if began - since >= WINDOW_SECONDS:
            since, spent = began, 0.0
        spent += now - began
        self._windows[type_name] = since, spent
        if spent > BUDGET_SECONDS:
            del self._windows[type_name]
            self._resting[type_name] = now + REST_SECONDS
            self._failed(
                type_name, question,
                f"took {spent:.1f} s of {BUDGET_SECONDS:g} s: it is not asked for {REST_SECONDS:g} s",
            )  # fmt: skip

    def _failed(self, type_name: str, question: str, text: str) -> None:
        self.failures[type_name] += 1
        self._failing[type_name] = question, text
        now = self._clock()
        said = self._said.get((type_name, question))
        if said is None or now - said >= SAY_AGAIN_SECONDS:
            self._said[type_name, question] = now
            self._note("strategy_failed", type_name, f"{question} {text}")


def _is_own(strategy: ShardAllocationStrategy) -> bool:
    """Tell whether a strategy comes with this package."""
    return type(strategy) in OWN


def _told(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"raised {type(error).__name__}: {text[:200]}"


def _nonsense(answer: object, wanted: str) -> str:
    if isinstance(answer, Coroutine):
        answer.close()
        return f"answered a coroutine, not {wanted}: it has to be a plain function"
    return f"answered {ascii(answer)[:80]}, not {wanted}"
