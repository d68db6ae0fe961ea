"""Runs of mixed faults, by seed: stages of overlapping faults under load, judged round by round.

A stage makes one to three faults at chosen moments and undoes them. Then everything has to heal by
itself: all nodes are up, one coordinates, and each shard answers. A round is a few stages. Then the
load stops, every entity is read, and the whole history of the round is judged. The next round goes
on with new entities on the same cluster.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from sharding_app.torture.faults import Fault, Made, Stage, nothing
from sharding_app.torture.judge import Outage
from sharding_app.torture.processes import NotInTime, until
from sharding_app.torture.scenario import Broken, Report, Scenario

HEAL_SECONDS = 30.0
LONGEST_SECONDS = 12.0
"""Time by which all faults of a stage are undone and servers are back, unless the machine is
slow.
"""
PAYMENTS = 0.1
"""Orders to accounts, for each call of a register."""
NAMES = ("n1", "n2", "n3")


class Mixed:
    """A plan by chance, and the run that carries it out."""

    def __init__(
        self,
        run: Scenario[Any],
        say: Callable[[str], object],
        faults: Mapping[str, tuple[Fault, float]],
        names: tuple[str, ...] = NAMES,
        *,
        rate: float = 300,
        entities: int = 1000,
        mend: Callable[[], None] = nothing,
    ) -> None:
        """`faults`: with their weights; `mend` repairs at the end of a stage."""
        self.run = run
        self.say = say
        self.faults = faults
        self.mend = mend
        self.stage = Stage(run, names, set())
        self.chance = random.Random(run.cluster.seed)
        self.began = time.monotonic()
        self.counts: dict[str, int] = {}
        self.answered_ms: list[float] = []
        self._rate, self._entities = rate, entities

    def begin(self) -> None:
        """Start the nodes and the load; return when every entity has answered once. Raises Broken,
        NotInTime.
        """
        self.run.begin(
            *self.stage.names, rate=self._rate, entities=self._entities, payments=PAYMENTS * self._rate
        )

    def round(self, stages: int) -> Report:
        """Make N stages, then judge. Raises Broken."""
        for _ in range(stages):
            self.one_stage()
        return self.run.finish()

    def one_stage(self) -> None:
        """Make one to three faults, undo them, and wait until all has healed."""
        steps: list[tuple[float, int, str]] = []
        for number in range(self.chance.choice([1, 1, 2, 3])):
            weights = [weight for _, weight in self.faults.values()]
            name = self.chance.choices(list(self.faults), weights)[0]
            at = self.chance.uniform(0.0, 1.0)
            lasts = self.chance.choice([0.1, 1.0, self.chance.uniform(0.0, 6.0)])
            steps += [(at, number, name), (at + lasts, number, "")]
        began = time.monotonic()
        made: dict[int, Made] = {}
        touched: list[str] = []
        for at, number, name in sorted(steps):
            time.sleep(max(0.0, began + at - time.monotonic()))
            if name:
                self.counts[name] = self.counts.get(name, 0) + 1
                made[number] = self.faults[name][0](self.stage)
                touched.append(made[number].what)
                self._tell(made[number].what)
            elif number in made:
                made[number].undo()
                self._tell(f"undone: {made[number].what}")
        ended = time.monotonic()
        self._outage(began, ended)
        self._heal(touched)

    def _outage(self, began: float, ended: float) -> None:
        """Note a fault that took longer than it should.

        Until a standby is in sync again, say, no commit is acknowledged.
        """
        if ended - began > LONGEST_SECONDS:
            self.run.outages.append(Outage(began, ended))
            self._tell(f"the machine is slow: this took {ended - began:.0f} s")

    def _heal(self, touched: list[str]) -> None:
        run, cluster = self.run, self.run.cluster
        began = time.monotonic()
        self.mend()
        at = time.monotonic()
        self._outage(began, at)
        for name in self.stage.names:
            self._wait_up(name)
        self._wait_for_all()
        self.stage.starved.clear()
        up = time.monotonic()
        run.wait_answers(up, seconds=HEAL_SECONDS)
        self.answered_ms.append((time.monotonic() - at) * 1000)
        # A slow machine works on what has waited for seconds. A caller that waits through the
        # faults of two stages has met an outage that neither of them is.
        run.wait_caught_up(up, seconds=HEAL_SECONDS)
        for name in self.stage.names:
            if "a bug:" in cluster.nodes[name].recent():
                raise Broken(f"{name} speaks of a bug, after {'; '.join(touched)}")
        self._tell(
            f"healed: all nodes up after {up - at:.1f} s, all answer after {time.monotonic() - at:.1f} s"
        )

    def _wait_for_all(self) -> None:
        """Wait for all nodes.

        The loop of a starved node may stand still behind its start, until a watchdog ends it.
        """
        cluster, names = self.run.cluster, self.stage.names

        def ended() -> list[str]:
            return [each for each in names if each in self.stage.starved and not cluster.nodes[each].alive]

        until(
            lambda: cluster.is_made_of(*names) or ended(), HEAL_SECONDS, f"{', '.join(names)} are up, or end"
        )
        for each in ended():
            self._start_again(each)
        cluster.wait_members(*names, seconds=HEAL_SECONDS)

    def _start_again(self, name: str) -> None:
        self._tell(f"{name} had ended, and is started again")
        self.run.cluster.launch(name).wait_up()

    def _wait_up(self, name: str) -> None:
        """Wait for a node.

        If it was starved and has ended, start it again, as a supervisor would.
        """
        nodes = self.run.cluster.nodes
        try:
            nodes[name].wait_up()
        except NotInTime:
            if nodes[name].alive or name not in self.stage.starved:
                raise
            self._start_again(name)

    def _tell(self, what: str) -> None:
        self.say(f"{time.monotonic() - self.began:8.1f} s  round {self.run.round_number}  {what}")
