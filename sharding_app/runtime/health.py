"""Is this node healthy? Three questions, as Kubernetes asks them.

* started: it was up once. Until then it may take its time.
* ready: it is up, a coordinator has heard it over the wire, what its shards take leases from has answered, and it hosts
  every type that it should. A rollout waits for this: with a type that is refused it must not go on to the next node.
  What was heard and has answered once counts until the node leaves: a coordinator that changes, or a database that is away
  for a moment, must not take all nodes out of service at once.
* alive: the event loop turns. Databases and Redis are left out on purpose: starting a node again does not heal them, and
  starting all of them again makes it worse.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from sharding_app.runtime.node import Node

Question = Literal["startup", "ready", "alive"]
ALIVE_LAG_SECONDS = 5.0


class Verdict(NamedTuple):
    ok: bool
    text: str


class NodeHealth:
    """Outlives a node's incarnations: what begins anew after a failure has started already."""

    def __init__(
        self,
        node: Callable[[], Node | None],
        lag_seconds: Callable[[], float],
        undeclared: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`undeclared` says which types the process wants to declare and cannot."""
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
        lag = self._lag()
        return Verdict(lag < ALIVE_LAG_SECONDS, f"the event loop was {lag:.3f} s late")

    def _ready(self, node: Node) -> Verdict:
        if node.state != "up":
            return Verdict(False, f"the node is {node.state}")
        if why := node.reaching.why_cut_off:
            return Verdict(False, why)
        wrong = [*node.not_hosted().values(), *self._undeclared()]
        if wrong:
            return Verdict(False, "; ".join(wrong))
        if not self._registered:
            coordinator = node.homes.coordinator
            if coordinator is None:
                return Verdict(False, "no coordinator is known yet")
            return Verdict(
                False,
                f"the coordinator {coordinator} has not heard this node through the channel layer yet: do their"
                " CHANNEL_LAYERS lead to the same Redis, with the same SHARDING['KEYS']?",
            )
        if not self._leases_answered:
            return Verdict(False, "its leases do not answer yet")
        return Verdict(True, "the node is up")
