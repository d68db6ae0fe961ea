"""Durable messages and timers on real nodes and a real PostgreSQL: nodes are killed between a
commit and what follows from it, and all nodes end and start again.
"""

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from sharding_app.protocol.allocation.singleton import SINGLETON
from sharding_app.torture.processes import until
from tests.acceptance.cluster import ROOT, Cluster, Copied, python
from tests.acceptance.conftest import NewScenario
from tests.acceptance.timers.apps import HELD
from tests.support.slack import PATIENT, SLACK

pytestmark = pytest.mark.acceptance

APPS = "project.sagas,tests.acceptance.timers"
ACCOUNT, ORDER, ROOM, PARCEL = (f"sagas.{each}" for each in ("Account", "Order", "Room", "Parcel"))
CLOCK, DIGEST = "timers.Clock", f"{SINGLETON}timers.Digest"
SECONDS = 20.0 * SLACK
MISSED = 5
"""Rings that a timer of one second misses at least while there is no node."""
RANG = (
    "SELECT e.payload->>'key', (e.payload->>'process')::int, (e.payload->>'instance')::int,"
    " extract(epoch FROM e.at)::float8 FROM sharding_event e JOIN sharding_type t ON t.id = e.type_id"
    " WHERE t.name = %s AND e.entity = %s AND e.name = 'Rang' ORDER BY e.seq"
)
WAITING = (
    "SELECT m.entity, m.target, m.command, m.parked FROM sharding_message m"
    " JOIN sharding_type t ON t.id = m.type_id WHERE t.name <> %s ORDER BY m.seq, m.position"
)


class Site:
    """A cluster, and a process that calls its entities (`tests.acceptance.caller`)."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster.more["ACCEPTANCE_APPS"] = APPS
        self._caller: Copied | None = None

    def start(self, *names: str, held: bool = False) -> None:
        """Start nodes; `held`: they commit messages and timers, and deliver none."""
        cluster = self.cluster
        cluster.more.pop(HELD, None)
        if held:
            cluster.more[HELD] = "yes"
        cluster.start(*names)

    def begin(self, *names: str, held: bool = False) -> None:
        """Start nodes and the caller."""
        self.cluster.expect(len(names))
        self.start(*names, held=held)
        self.call()

    def call(self) -> None:
        """Start a caller, with the present settings."""
        self.close()
        self._caller = Copied(
            python("tests.acceptance.caller"), self._environment(), self.cluster.place / "caller.log",
            talks=True, folder=ROOT,
        )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        sharding = json.dumps({**self.cluster.sharding, **PATIENT})
        return {**self.cluster.environment(), "ACCEPTANCE_SHARDING": sharding}

    def order(self, what: str, type_name: str, entity: str, command: str, *args: object) -> dict[str, Any]:
        assert self._caller is not None
        pipe_in, pipe_out = self._caller.child.stdin, self._caller.child.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        pipe_in.write(json.dumps([what, type_name, entity, command, args]).encode() + b"\n")
        pipe_in.flush()
        line = pipe_out.readline()
        assert line, self._caller.log.read_text()[-2000:]
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __call__(self, type_name: str, entity: str, command: str, *args: object) -> Any:
        """Ask an entity."""
        answer = self.order("ask", type_name, entity, command, *args)
        assert "error" not in answer, answer
        return answer["is"]

    def becomes(self, wanted: object, type_name: str, entity: str, command: str) -> None:
        """Wait until a query answers that."""
        until(
            lambda: self(type_name, entity, command) == wanted, SECONDS,
            f"{type_name} {entity}: {command}() is {wanted!r}",
        )  # fmt: skip

    def rang(self, type_name: str, entity: str) -> list[tuple[str, int, int, float]]:
        """Return what has rung, without waking the entity: key, process, object and time."""
        return [(key, pid, number, at) for key, pid, number, at in self.cluster.sql(RANG, type_name, entity)]

    def rings(self, count: int, type_name: str, entity: str) -> list[tuple[str, int, int, float]]:
        """Wait until that many have rung."""
        found: list[tuple[str, int, int, float]] = until(
            lambda: (rows := self.rang(type_name, entity)) and len(rows) >= count and rows, SECONDS,
            f"{type_name} {entity} has rung {count} times",
        )  # fmt: skip
        return found

    def waiting(self) -> list[tuple[str, str, str, bool]]:
        """Return the stored rows: owner, target, command, and whether each is parked."""
        found = self.cluster.sql(WAITING, DIGEST)
        return [(owner, target, command, parked) for owner, target, command, parked in found]

    def kill(self, *names: str) -> None:
        for name in names:
            self.cluster.nodes[name].end()

    def close(self) -> None:
        if self._caller is not None:
            self._caller.end()


@pytest.fixture
def site(scenario: NewScenario) -> Iterator[Site]:
    run = scenario()
    made = Site(run.cluster)
    yield made
    made.close()
    run.passed = True


def test_money_and_orders(site: Site) -> None:
    """The two sagas, with their answers, their failures and what they undo."""
    site.begin("a", "b")
    assert site(ACCOUNT, "ann", "deposit", 1000) == 1000
    assert site(ACCOUNT, "ann", "transfer", "bob", 300) == 700
    site.becomes(300, ACCOUNT, "bob", "cents")
    site(ACCOUNT, "bob", "close")
    site(ACCOUNT, "ann", "transfer", "bob", 100)
    site.becomes(700, ACCOUNT, "ann", "cents")
    site(ORDER, "1", "place", "blue", "ann", 200)
    site.becomes("shipped as 1-1", ORDER, "1", "how_far")
    site(ORDER, "2", "place", "blue", "ann", 200)
    site(ORDER, "3", "place", "red", "ann", 9000)
    for each in "23":
        site.becomes("cancelled", ORDER, each, "how_far")
    assert [site(ROOM, each, "taken_by") for each in ("blue", "red")] == ["1", ""]
    assert [site(PARCEL, each, "times_sent") for each in "123"] == [1, 0, 0]
    assert [site(ACCOUNT, each, "cents") for each in ("ann", "bob")] == [500, 300]
    until(lambda: not site.waiting(), SECONDS, "nothing is left behind, no timer either")


@pytest.mark.parametrize("how", ["its node is killed, others are there", "all nodes are killed"])
def test_a_message_outlives_the_node_that_has_committed_it(site: Site, how: str) -> None:
    """It is killed between the commit and the delivery."""
    site.begin("a", "b", held=True)
    site(ACCOUNT, "ann", "deposit", 1000)
    assert site(ACCOUNT, "ann", "transfer", "bob", 300) == 700
    site(ORDER, "1", "place", "blue", "ann", 200)
    assert [each[2] for each in site.waiting()].count("deposit") == 1
    assert site(ACCOUNT, "bob", "cents") == 0
    if how == "all nodes are killed":
        site.kill("a", "b")
        site.start("a", "b")
    else:
        site.start("c", "d")
        site.kill("a", "b")
    site.becomes(300, ACCOUNT, "bob", "cents")
    site.becomes("shipped as 1-1", ORDER, "1", "how_far")
    assert site(ACCOUNT, "ann", "cents") == 500
    until(lambda: not site.waiting(), SECONDS, "nothing is left behind")


def test_messages_and_timers_move_to_other_shards(site: Site) -> None:
    """The number of shards changes while some wait: they get the shards of the new number."""
    site.begin("a", "b", held=True)
    site(ACCOUNT, "ann", "deposit", 1000)
    assert site(ACCOUNT, "ann", "transfer", "bob", 300) == 700
    site(ORDER, "1", "place", "blue", "ann", 200)
    site(CLOCK, "c", "set", "once", 0.5)
    site.kill("a", "b")
    site.cluster.sharding["NUMBER_OF_SHARDS"] = 7
    refused = site.cluster.manage("sharding_remove_data", "--yes")
    assert refused.returncode == 1
    assert "--keep-messages" in refused.stderr
    done = site.cluster.manage("sharding_remove_data", "--yes", "--keep-messages")
    assert done.returncode == 0, done.stderr
    assert "have the shards of these settings" in done.stdout
    site.start("c", "d")
    site.call()
    site.becomes(300, ACCOUNT, "bob", "cents")
    site.becomes("shipped as 1-1", ORDER, "1", "how_far")
    site.rings(1, CLOCK, "c")
    assert site(ACCOUNT, "ann", "cents") == 500
    until(lambda: not site.waiting(), SECONDS, "nothing is left behind")


def test_timers_fire_at_their_time_and_wake_what_is_not_in_memory(site: Site) -> None:
    site.begin("a", "b")
    began = time.time()
    site(CLOCK, "stays", "set", "once", 1.0)
    site(CLOCK, "leaves", "set", "once", 1.0, True)
    site(CLOCK, "replaced", "set", "x", 0.5)
    site(CLOCK, "replaced", "set", "x", 2.0)
    site(CLOCK, "cancelled", "set", "x", 1.0)
    site(CLOCK, "cancelled", "unset", "x")
    (stays,) = site.rings(1, CLOCK, "stays")
    (leaves,) = site.rings(1, CLOCK, "leaves")
    (replaced,) = site.rings(1, CLOCK, "replaced")
    assert stays[3] - began >= 1.0
    assert leaves[3] - began >= 1.0
    assert replaced[3] - began >= 2.0
    assert site.rang(CLOCK, "cancelled") == []
    assert site.waiting() == []


def test_repeating_timers_go_on_over_a_full_restart(site: Site) -> None:
    site.begin("a", "b")
    for missed in ("once", "all", "skip"):
        site(CLOCK, missed, "repeat", missed, 1.0, missed)
    for missed in ("once", "all", "skip"):
        site.rings(2, CLOCK, missed)
    site.rings(2, DIGEST, "the")
    site.kill("a", "b")
    before = {each: site.rang(CLOCK, each) for each in ("once", "all", "skip")}
    digest = site.rang(DIGEST, "the")
    pause(MISSED)
    site.start("a", "b")
    wanted = {"once": 3, "all": MISSED, "skip": 3}
    after = {each: site.rings(len(before[each]) + wanted[each], CLOCK, each) for each in before}
    again = site.rings(len(digest) + 2, DIGEST, "the")
    new = {each: [at for *_, at in rows[len(before[each]) :]] for each, rows in after.items()}
    # Those that the timer has missed come one right after the other only where each counts. On a
    # busy machine one of them may take long.
    caught_up = new["all"][:MISSED]
    shortest = min(third - first for first, third in zip(caught_up, caught_up[2:], strict=False))
    assert shortest < 1.0 < new["once"][2] - new["once"][0] + 0.2
    assert {each[1] for each in again[len(digest) :]}.isdisjoint(each[1] for each in digest)
    for rows in (*after.values(), again):
        gaps = [late[3] - early[3] for early, late in pairwise(rows)]
        assert sum(gaps) > len(gaps) - 1.1, "never more often than once a second"


def test_what_a_site_stores_in_its_own_transaction(site: Site) -> None:
    """A row of the application and a message are stored together, or neither is."""
    site.begin("a")
    site(CLOCK, "first", "chime")
    assert site.order("in vain", CLOCK, "c", "rings", "in vain")["error"] == "InVain"
    assert site.order("with row", CLOCK, "c", "rings", "stored") == {"is": None}
    assert site.order("durably", CLOCK, "c", "chime") == {"is": None}
    assert site.order("later", CLOCK, "c", "rings", 1.0, "late") == {"is": None}
    rung = site.rings(3, CLOCK, "c")
    assert [each[0] for each in rung] == ["stored", "chime", "late"]
    assert site.cluster.sql("SELECT count(*) FROM auth_group") == [(1,)]
    site.kill("a")
    site.order("durably", CLOCK, "c", "rings", "no node is up")
    site.start("b")
    assert site.rings(4, CLOCK, "c")[3][0] == "no node is up"


def pause(seconds: float) -> None:
    """Let real time pass: what is tested has to do with it."""
    time.sleep(seconds)
