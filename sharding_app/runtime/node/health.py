"""A node's health: three questions, as Kubernetes asks them.

* startup: the node was up once. Until then it may take its time.
* ready: the node is up and not cut off from its servers, a coordinator has heard it over the wire,
  the source of its shards' leases has answered, and it hosts every type that it should. A rollout
  waits for this: with a refused type it must not go on to the next node. The coordinator and the
  leases need to have answered once only. Otherwise a change of coordinator, or a database that is
  away for a moment, would take all nodes out of service at once.
* alive: the event loop turns. Databases and Redis are left out on purpose: a restart of the node
  does not heal them, and a restart of all nodes makes it worse.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, assert_never

from sharding_app.runtime.node.node import Node

Question = Literal["startup", "ready", "alive"]
ALIVE_LAG_SECONDS = 5.0


class Verdict(NamedTuple):
    ok: bool
    text: str


class NodeHealth:
    """Shared by all incarnations of a process: after a failure it still counts as started."""

    def __init__(
        self,
        node: Callable[[], Node | None],
        lag_seconds: Callable[[], float],
        undeclared: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`undeclared` returns why types that the process wants to declare are missing."""
        self._undeclared = undeclared
        self._node = node
        self._lag = lag_seconds
        self._started = False
        self._registered = False
        self._leases_answered = False

    def ask(self, question: Question) -> Verdict:
        node = self._node()
        state = "new" if node is None else node.state
        self._started = self._started or state == "up"
        self._registered = self._registered or (node is not None and state == "up" and node.registered)
        self._leases_answered = self._leases_answered or (node is not None and node.hosting.leases_answer)
        match question:
            case "startup":
                return Verdict(self._started, f"the node is {state}")
            case "ready":
                return self._ready(node) if node is not None else Verdict(False, "the node is new")
            case "alive":
                lag = self._lag()
                return Verdict(lag < ALIVE_LAG_SECONDS, f"the event loop was {lag:.3f} s late")
            case _:
                assert_never(question)

    def _ready(self, node: Node) -> Verdict:
        if node.state != "up":
            return Verdict(False, f"the node is {node.state}")
        if why := node.reaching.why_cut_off:
            return Verdict(False, why)
        wrong = [*node.not_hosted().values(), *self._undeclared()]
        if wrong:
            return Verdict(False, "; ".join(wrong))
        if not self._registered:
            coordinator = node.locator.coordinator
            if coordinator is None:
                return Verdict(False, "no coordinator is known yet")
            return Verdict(
                False,
                f"the coordinator {coordinator} has not heard this node yet: have both the same SHARDING['KEYS'], and a way"
                " to each other (LINK_ADDRESS, or CHANNEL_LAYERS of the same Redis)?",
            )
        if not self._leases_answered:
            return Verdict(False, "its leases do not answer yet")
        return Verdict(True, "the node is up")
