"""What the site may ask of a local cluster: to kill, freeze, drain and add nodes of this command.

Each request is answered in words for people. The last node that runs is killed, frozen or drained
only by a request that says `anyway`, since no entity answers then.
"""

import signal
import time
from collections.abc import Callable

from sharding_app.processes.child_processes import Child, Supervisor
from sharding_app.processes.control import Code, NodeProcess, Reply, Request, State

MOST_NODES = 8
"""More nodes are not added at a click: each takes memory, and seven connections of PostgreSQL's
hundred.
"""
MOST_FROZEN_SECONDS = 60.0


class SteeredNodes:
    """`new_node` makes a node of a name; it is started here. `say` prints a line."""

    def __init__(
        self, supervisor: Supervisor, new_node: Callable[[str], Child], say: Callable[[str], object]
    ) -> None:
        self._supervisor = supervisor
        self._new_node = new_node
        self._say = say

    def handle(self, request: Request) -> Reply:
        """Do what is asked, or say why not."""
        if request.action == "look":
            return self._reply("done")
        if request.action == "add":
            return self._add()
        node = next((each for each in self._nodes if each.name == request.node), None)
        if node is None:
            return self._reply("gone", f"This command has no node {request.node!r} now.")
        if not node.alive:
            return self._reply("gone", f"{node.name} has ended already. It is started again in a moment.")
        if node.retiring and request.action != "kill":
            return self._reply("busy", f"{node.name} hands its shards over already, and ends then.")
        if request.action == "kill":
            return self._kill(node, request)
        if node.thaws_at is not None:
            return self._reply(
                "busy",
                f"{node.name} is frozen for {self._frozen_seconds(node):.0f} s more. Wait, or kill it.",
            )
        return self._freeze(node, request) if request.action == "freeze" else self._drain(node, request)

    def _kill(self, node: Child, request: Request) -> Reply:
        if self._is_last(node, request):
            return self._last(node, "Until it is up again, no entity answers: calls wait, or fail in time.")
        pid = node.pid
        self._say(f"{node.name} is killed, as its site asks.")
        node.signal(signal.SIGKILL)
        after = "It does not come back." if node.retiring else "It is started again in a moment."
        return self._reply("done", f"{node.name} (process {pid}) is killed. {after}")

    def _freeze(self, node: Child, request: Request) -> Reply:
        seconds = request.seconds
        if not 1 <= seconds <= MOST_FROZEN_SECONDS:
            return self._reply("invalid", f"Freeze a node for 1 to {MOST_FROZEN_SECONDS:.0f} s.")
        if self._is_last(node, request):
            return self._last(node, f"For {seconds:g} s no entity answers: calls wait, or fail in time.")
        self._say(f"{node.name} is frozen for {seconds:g} s, as its site asks.")
        node.freeze(seconds)
        return self._reply("done", f"{node.name} is frozen for {seconds:g} s.")

    def _drain(self, node: Child, request: Request) -> Reply:
        if self._is_last(node, request):
            return self._last(node, "Once it has left, no entity answers until you add a node.")
        self._say(f"{node.name} is drained, as its site asks.")
        self._supervisor.retire(node)
        return self._reply("done", f"{node.name} hands its shards over, and ends then.")

    def _add(self) -> Reply:
        taken = {each.name for each in self._nodes}
        if len(taken) >= MOST_NODES:
            return self._reply("full", f"There are {len(taken)} nodes, and at most {MOST_NODES} at a click.")
        name = next(each for number in range(1, MOST_NODES + 1) if (each := f"node-{number}") not in taken)
        self._say(f"{name} is added, as its site asks.")
        self._supervisor.add(self._new_node(name))
        return self._reply("done", f"{name} starts, and is given shards once it is up.")

    # -- Inside ------------------------------------------------------------------------------------

    @property
    def _nodes(self) -> list[Child]:
        return [each for each in self._supervisor.children if each.rank]

    def _is_last(self, node: Child, request: Request) -> bool:
        if request.anyway or self._state(node) != "up":
            return False
        return all(self._state(each) != "up" for each in self._nodes if each is not node)

    def _last(self, node: Child, then: str) -> Reply:
        return self._reply("last", f"{node.name} is the last node that runs. {then}")

    def _state(self, node: Child) -> State:
        if not node.alive:
            return "ended"
        if node.thaws_at is not None:
            return "frozen"
        if node.retiring:
            return "leaving"
        return "up" if node.ready.is_set() else "starting"

    @staticmethod
    def _frozen_seconds(node: Child) -> float:
        return 0.0 if node.thaws_at is None else round(max(0.0, node.thaws_at - time.monotonic()), 1)

    def _reply(self, code: Code, text: str = "") -> Reply:
        nodes = tuple(
            NodeProcess(each.name, each.pid or 0, self._state(each), self._frozen_seconds(each))
            for each in self._nodes
        )
        return Reply(code, text, nodes)
