"""Is this node healthy? Three questions, as Kubernetes asks them.

* started: it was up once. Until then it may take its time.
* ready: it is up and registered with a coordinator, and what its shards take leases from has answered. Once it was, it
  stays ready until it leaves: a coordinator that changes, or a database that is away for a moment, must not take all nodes
  out of service at once.
* alive: the event loop turns. Databases and Redis are left out on purpose: starting a node again does not heal them, and
  starting all of them again makes it worse.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from sharding_app.runtime.node import Node

Question = Literal["startup", "ready", "alive"]
ALIVE_LAG_SECONDS = 5.0


class Verdict(NamedTuple):
    ok: bool
    text: str


class NodeHealth:
    """Outlives a node's incarnations: what begins anew after a failure has started already."""

    def __init__(self, node: Callable[[], Node | None], lag_seconds: Callable[[], float]) -> None:
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
                if state == "up" and not self._registered:
                    return Verdict(False, "no coordinator has registered the node yet")
                if state == "up" and not self._leases_answered:
                    return Verdict(False, "its leases do not answer yet")
                return Verdict(state == "up", f"the node is {state}")
        lag = self._lag()
        return Verdict(lag < ALIVE_LAG_SECONDS, f"the event loop was {lag:.3f} s late")
