"""One scenario: a cluster under load, faults with their moments, and the verdict with its figures.

    with Scenario(cluster, "kill") as run:
        run.begin("a", "b", "c", rate=400)
        ...
        run.fault("kill -9 of a", ...)
        run.finish()            # stops the load, reads every entity, judges, reports

Correctness is judged, with generous bounds on liveness; how long things took is reported, not
judged.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self, TypeVar

import msgspec

from sharding_app.protocol.allocation.singleton import SINGLETON
from sharding_app.protocol.ids import shard_of
from sharding_app.torture.audit import audit
from sharding_app.torture.cluster import Cluster
from sharding_app.torture.history import PATIENT_SECONDS, Call, export, read_history
from sharding_app.torture.judge import Outage, judge
from sharding_app.torture.load import entities_of, payments_file
from sharding_app.torture.payments import read_orders
from sharding_app.torture.processes import Load, NotInTime, until
from sharding_app.torture.registry import Registry

READ_SECONDS = 30.0
SETTLE_SECONDS = 120.0
"""Time by which every durable message has taken effect after the last fault. The longest pause
between two attempts is a minute.
"""
SETTLE_BROKEN_SECONDS = 10.0
"""In a round that is broken already: its messages may wait for entities that cannot start."""
C = TypeVar("C", bound=Cluster)


class Broken(AssertionError):
    """A promise was broken. The message names it, and the place of the history."""


class Fault(msgspec.Struct):
    """A fault, and how long its shards did not answer."""

    what: str
    at: float
    shards: list[int]
    note: str = ""
    median_ms: float | None = None
    worst_ms: float | None = None


class Report(msgspec.Struct):
    scenario: str
    seed: int
    calls: int = 0
    outcomes: dict[str, int] = {}
    events: int = 0
    payments: dict[str, int] = {}
    "Steps of payments and timers, by name."
    faults: list[Fault] = []
    figures: dict[str, float] = {}
    broken: list[str] = []

    def lines(self) -> list[str]:
        counts = _counted(self.outcomes)
        found = [f"{self.scenario} (seed {self.seed}): {self.calls} calls ({counts}), {self.events} events"]
        if self.payments:
            found.append(f"  durable messages and timers: {_counted(self.payments)}")
        for each in self.faults:
            times = (
                ""
                if each.median_ms is None
                else f": median {each.median_ms:.0f} ms, worst {each.worst_ms:.0f} ms"
            )
            found.append(f"  {each.what}, {len(each.shards)} shards{times} {each.note}".rstrip())
        found += [f"  {name}: {value:g}" for name, value in self.figures.items()]
        return found + [f"  BROKEN: {each}" for each in self.broken]


def _counted(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in sorted(numbers.items()))


class Scenario(Generic[C]):
    """A run on a cluster. Its processes end with it."""

    def __init__(self, cluster: C, name: str) -> None:
        self.cluster = cluster
        self.place = cluster.place
        self.report = Report(name, cluster.seed)
        self.registry = Registry(self._shard_of)
        self.load: Load
        self.entities = 1000
        self.share = 1.0
        "Of the wanted rates: what the machine can carry."
        self.round_number = 0
        self.passed = False
        self.patience = PATIENT_SECONDS
        self.outages: list[Outage] = []
        self.moved: Collection[int] = frozenset()
        "Shards that were moved between journals."

    def begin(
        self,
        *nodes: str,
        rate: float = 300,
        entities: int = 1000,
        roles: dict[str, str] | None = None,
        payments: float = 0.0,
    ) -> None:
        """Start the nodes and the load. Return when every entity has answered once."""
        self.entities = entities
        # Otherwise the first coordinator may give all shards to itself before it knows of the
        # others.
        self.cluster.expect(len(nodes))
        self.load = self.cluster.start_load(
            rate=rate, entities=entities, patience=self.patience, payments=payments
        )
        self.cluster.start(*nodes, roles=roles)
        self.warm()

    def warm(self) -> None:
        answer = self.load.order("warm")
        _, bad, share, *_ = answer.split()
        if bad != "0":
            raise Broken(f"not every entity answered at the beginning: {answer}")
        self.share = float(share)
        self.load.order("go")

    def names(self) -> list[str]:
        """Return the entities of this round."""
        return entities_of(self.round_number, self.entities)

    def shard(self, entity: str) -> int:
        return shard_of(entity, self.cluster.number_of_shards)

    def _shard_of(self, type_name: str, entity: str) -> int:
        return shard_of(entity, 1) if type_name.startswith(SINGLETON) else self.shard(entity)

    def go_on(self, seconds: float) -> None:
        """Let the load run: this is the scenario's own time, not a wait for a condition."""
        time.sleep(seconds)

    def fault(self, what: str, at: float, shards: Iterable[int]) -> Fault:
        """Note a fault that has just been made, and call each of its shards at once."""
        fault = Fault(what, at, sorted(shards))
        self.report.faults.append(fault)
        self.probe(fault.shards)
        return fault

    def probe(self, shards: Iterable[int]) -> None:
        """Send one append to each of these shards now."""
        wanted = set(shards)
        chosen: dict[int, str] = {}
        for entity in reversed(self.names()):
            if (shard := self.shard(entity)) in wanted:
                chosen.setdefault(shard, entity)
        if chosen:
            self.load.order(f"probe {','.join(chosen.values())}")

    def calls(self) -> list[Call]:
        return read_history(load.out for load in self.cluster.loads)

    def wait_answers(
        self, at: float, shards: Iterable[int] | None = None, seconds: float = 15.0, of: Load | None = None
    ) -> None:
        """Wait until each of these shards, or each of all, has answered a call that began after
        that time.

        `of`: count only that load's calls. Shards without an entity of this round are not asked:
        the entities that stall a loop have names of their own.
        """
        wanted = set(self.cluster.epochs() if shards is None else shards)
        wanted &= {self.shard(entity) for entity in self.names()}
        self.probe(wanted)

        def answered() -> bool:
            calls = self.calls() if of is None else read_history([of.out])
            since = (call for call in calls if call.outcome == "ok" and call.start >= at)
            return wanted <= {self.shard(call.entity) for call in since}

        until(answered, seconds, "every shard answers", 0.1)

    def wait_caught_up(self, at: float, seconds: float) -> None:
        """Wait until no call is under way that began before that time."""
        until(
            lambda: all(load.caught_up(at) for load in self.cluster.loads), seconds, "earlier calls end", 0.1
        )

    def answered_since(self, at: float, shards: Iterable[int] | None = None) -> int:
        """Count the answered calls that began after that time, of these shards or of all."""
        wanted = None if shards is None else set(shards)
        return sum(
            call.outcome == "ok"
            and call.start >= at
            and (wanted is None or self.shard(call.entity) in wanted)
            for call in self.calls()
        )

    def new_round(self) -> None:
        """Go on with new entities, so that histories stay short enough to be judged."""
        self.round_number += 1
        self.passed = False
        for load in self.cluster.loads:
            load.new_round(self.round_number)
        self.report = Report(self.report.scenario, self.report.seed)
        self.load.order("go")

    def finish(self) -> Report:
        """Stop the load, read every entity, judge all, and report."""
        for load in self.cluster.loads:
            if load is not self.load:
                load.order("halt")
        share = float(self.load.order("halt").split()[1])
        before = {(call.process, call.number) for call in self.calls()}
        self.load.order("sweep")
        calls = self.calls()
        final = [call for call in calls if (call.process, call.number) not in before]
        others = [call for call in calls if (call.process, call.number) in before]
        if len(final) != self.entities:
            raise Broken(f"{len(final)} of {self.entities} entities were read at the end")
        cluster = self.cluster
        rows, homes, decided = until(
            lambda: (cluster.rows(self.round_number), cluster.homes(), cluster.decided()),
            READ_SECONDS, "the journal can be read",
        )  # fmt: skip
        report = self.report
        report.calls, report.events = len(calls), len(rows)
        if share < 0.95:
            report.figures["share of the wanted rate that the machine could carry"] = share
        for call in calls:
            report.outcomes[call.outcome] = report.outcomes.get(call.outcome, 0) + 1
        for fault in report.faults:
            self._measure(fault, calls)
        handled = self.registry.handled
        lives = self.registry.read(self.cluster.instances)
        if self.registry.handled - handled < self.entities:
            raise Broken("the registry was not told of all that lives")
        report.figures["messages that instances told of"] = self.registry.handled - handled
        report.figures["objects that took over, so far"] = self.registry.successions
        report.broken = judge(
            others, final, rows, homes, decided, lives, self.patience, self.outages, self.moved
        )
        report.broken += self._audit()
        report.broken += self.judge_more()
        export(calls, self.place / "history.json")
        (self.place / "journal.json").write_bytes(msgspec.json.encode({"rows": rows, "homes": homes}))
        self.judged(report)
        if report.broken:
            raise Broken("\n".join([*report.lines(), f"  history: {self.place / 'history.json'}"]))
        self.passed = True
        return report

    def _audit(self) -> list[str]:
        """Judge the accounts, once every message has taken effect."""
        cluster, number, report = self.cluster, self.round_number, self.report
        orders = read_orders(payments_file(load.out) for load in cluster.loads)
        if not orders:
            return []
        began = time.monotonic()
        seconds = SETTLE_BROKEN_SECONDS if report.broken else SETTLE_SECONDS
        with suppress(NotInTime):
            until(lambda: not cluster.left(number), seconds, "nothing is left", 0.1)
        report.figures["seconds until all durable messages had taken effect"] = time.monotonic() - began
        postings, left = until(
            lambda: (cluster.postings(number), cluster.left(number)), READ_SECONDS, "accounts can be read"
        )
        report.payments = Counter(each.what for each in postings)
        (self.place / "postings.json").write_bytes(msgspec.json.encode({"postings": postings, "left": left}))
        return audit(orders, postings, left)

    def judge_more(self) -> list[str]:
        """Return further broken promises. Subclasses judge here what else follows the accounts."""
        return []

    def judged(self, report: Report) -> None:
        """Do nothing. Subclasses get each report here, good or bad."""

    def _measure(self, fault: Fault, calls: list[Call]) -> None:
        """Measure the time from the fault to each shard's first answer to a later call."""
        first: dict[int, float] = {}
        for call in calls:
            if call.outcome == "ok" and call.start >= fault.at and call.end is not None:
                shard = self.shard(call.entity)
                first[shard] = min(first.get(shard, call.end), call.end)
        waits = [(first[shard] - fault.at) * 1000 for shard in fault.shards if shard in first]
        if waits:
            fault.median_ms, fault.worst_ms = statistics.median(waits), max(waits)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.close()
        if self.passed:
            return
        # A failure shows the last words of all processes.
        for log in sorted(self.place.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-25:]
            print(f"--- {log.name}", *lines, sep="\n", file=sys.stderr)
