"""What a site may ask of the nodes of its `runcluster`, and what it is told."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sharding_app.management import steered_nodes
from sharding_app.management.steered_nodes import MOST_NODES, SteeredNodes
from sharding_app.processes import child_processes
from sharding_app.processes.child_processes import Child, Supervisor
from sharding_app.processes.control import Reply, Request
from tests.support.live import until


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the time stand still: what is frozen is so for the whole of its time."""
    for module in (steered_nodes, child_processes):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1000.0))


class Node(Child):
    """A node without a process."""

    def __init__(self, name: str) -> None:
        super().__init__(name, [], rank=1)
        self.running = False
        self.signals: list[int] = []

    @property
    def pid(self) -> int:
        return 7

    @property
    def alive(self) -> bool:
        return self.running

    def start(self) -> None:
        self.running = True
        self.ready.set()

    def signal(self, number: int) -> None:
        self.signals.append(number)
        self.running = self.running and number != signal.SIGKILL


class Cluster:
    def __init__(self, nodes: int) -> None:
        self.said: list[str] = []
        site = Child("site", [])
        self.supervisor = Supervisor([site], self.said.append)
        for number in range(1, nodes + 1):
            self.supervisor.add(Node(f"node-{number}"))
        self.steered = SteeredNodes(self.supervisor, Node, self.said.append)

    def ask(self, action: Any, node: str = "", seconds: float = 10.0, *, anyway: bool = False) -> Reply:
        return self.steered.handle(Request(action, node, seconds, anyway))

    def states(self) -> dict[str, str]:
        return {each.name: each.state for each in self.ask("look").nodes}

    def node(self, name: str) -> Any:
        return next(each for each in self.supervisor.children if each.name == name)


@pytest.mark.usefixtures("clock")
def test_kill_freeze_drain_and_add() -> None:
    cluster = Cluster(3)
    killed = cluster.ask("kill", "node-1")
    assert (killed.code, killed.text) == (
        "done", "node-1 (process 7) is killed. It is started again in a moment.",
    )  # fmt: skip
    assert cluster.ask("freeze", "node-2").code == "done"
    assert cluster.node("node-2").signals == [signal.SIGSTOP]
    cluster.node("node-1").start()
    assert cluster.ask("drain", "node-3").code == "done"
    assert cluster.node("node-3").signals == [signal.SIGTERM]
    assert cluster.states() == {"node-1": "up", "node-2": "frozen", "node-3": "leaving"}
    assert cluster.ask("look").nodes[1].seconds == 10
    cluster.node("node-2").thaw()
    assert cluster.node("node-2").signals[-1] == signal.SIGCONT
    assert cluster.ask("add").code == "done"
    assert cluster.states()["node-4"] == "up"
    assert cluster.said == [
        "node-1 is killed, as its site asks.", "node-2 is frozen for 10 s, as its site asks.",
        "node-3 is drained, as its site asks.", "node-4 is added, as its site asks.",
    ]  # fmt: skip


def test_the_last_node_that_runs_is_asked_about_twice() -> None:
    cluster = Cluster(3)
    cluster.ask("freeze", "node-1")
    cluster.ask("drain", "node-2")
    for action, then in (
        ("kill", "Until it is up again"),
        ("freeze", "For 10 s"),
        ("drain", "until you add"),
    ):
        told = cluster.ask(action, "node-3")
        assert (told.code, told.text.startswith("node-3 is the last node that runs. ")) == ("last", True)
        assert then in told.text
    assert cluster.node("node-3").signals == []
    assert cluster.ask("kill", "node-1").code == "done", "one that does not run is not the last one"
    assert cluster.ask("kill", "node-3", anyway=True).code == "done"


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("action", "node", "seconds", "code", "text"),
    [
        ("kill", "node-9", 1, "gone", "This command has no node 'node-9' now."),
        ("kill", "site", 1, "gone", "This command has no node 'site' now."),
        ("kill", "node-1", 1, "gone", "node-1 has ended already. It is started again in a moment."),
        ("drain", "node-2", 1, "busy", "node-2 is frozen for 10 s more. Wait, or kill it."),
        ("freeze", "node-2", 1, "busy", "node-2 is frozen for 10 s more. Wait, or kill it."),
        ("freeze", "node-3", 1, "busy", "node-3 hands its shards over already, and ends then."),
        ("freeze", "node-4", 0, "invalid", "Freeze a node for 1 to 60 s."),
        ("freeze", "node-4", float("nan"), "invalid", "Freeze a node for 1 to 60 s."),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told(action: str, node: str, seconds: float, code: str, text: str) -> None:
    cluster = Cluster(5)
    cluster.ask("kill", "node-1")
    cluster.ask("freeze", "node-2")
    cluster.ask("drain", "node-3")
    said = list(cluster.said)
    told = cluster.ask(action, node, seconds)
    assert (told.code, told.text) == (code, text)
    assert cluster.said == said, "nothing was done"


def test_nodes_are_added_up_to_a_limit() -> None:
    cluster = Cluster(MOST_NODES - 1)
    assert cluster.ask("add").code == "done"
    told = cluster.ask("add")
    assert (told.code, told.text) == (
        "full",
        f"There are {MOST_NODES} nodes, and at most {MOST_NODES} at a click.",
    )


def test_an_answer_about_many_nodes_is_short() -> None:
    assert len(msgspec.json.encode(Cluster(40).ask("look"))) < 2048, "a datagram of macOS"


def state_of(child: Child) -> str:
    found = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(child.pid)], capture_output=True, text=True, check=False
    )
    return found.stdout.strip()[:1]


def test_processes_freeze_and_go_on_and_one_that_was_drained_stays_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    code = "import signal, sys; print('up', flush=True); signal.sigwait([signal.SIGTERM])"
    block = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "

    def new(name: str) -> Child:
        return Child(
            name, [sys.executable, "-c", block + code], rank=1, listener=lambda child, _: child.ready.set()
        )

    supervisor = Supervisor([new("node-1"), new("node-2")], said.append)
    steered = SteeredNodes(supervisor, new, said.append)
    first, second = supervisor.children
    monkeypatch.setattr(steered_nodes, "MOST_FROZEN_SECONDS", 600.0)
    for child in (first, second):
        child.start()
    try:
        until(lambda: first.ready.is_set() and second.ready.is_set(), 30, "both are up")
        assert steered.handle(Request("freeze", "node-1", 500.0)).code == "done"
        until(lambda: state_of(first) == "T", 10, "it is stopped")
        first.thaws_at = 0.0
        supervisor.look()
        until(lambda: state_of(first) != "T", 10, "it goes on")
        assert steered.handle(Request("drain", "node-2")).code == "done"

        def left() -> bool:
            supervisor.look()
            return second not in supervisor.children

        until(left, 10, "it has left")
        assert said[-2:] == [
            "node-2 is drained, as its site asks.",
            "node-2 has left: it ended with exit code 0.",
        ]
        steered.handle(Request("freeze", "node-1", 500.0, anyway=True))
    finally:
        supervisor.stop()
    assert first.end == "ended with exit code 0", "a frozen one ends in order, too"
