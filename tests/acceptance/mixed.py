"""Runs of mixed faults, by seed: stages of overlapping faults under load, judged round by round.

A stage makes one to three faults at chosen moments, undoes them, and then everything has to heal by itself: all nodes
are up, one coordinates, and each shard answers. A round is a few stages; then the load stops, every entity is read, and
the whole history of the round is judged. The next round goes on with new entities on the same cluster.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from tests.acceptance.faults import FAULTS, Made, Stage, possible, standby_again
from tests.acceptance.scenario import Report, Scenario

HEAL_SECONDS = 30.0
NAMES = ("n1", "n2", "n3")


class Mixed:
    """A cluster whose nodes reach their servers through proxies, the last through a cable, and a plan by chance."""

    def __init__(
        self,
        run: Scenario,
        say: Callable[[str], object],
        faults: Sequence[str] = (),
        names: tuple[str, ...] = NAMES,
        rate: float = 300,
        entities: int = 1000,
    ) -> None:
        unknown = set(faults) - set(FAULTS)
        if unknown:
            raise ValueError(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
        with_standby = run.cluster.servers.pair is not None
        self.run = run
        self.say = say
        self.faults = [name for name in faults or FAULTS if name in possible(standby=with_standby)]
        self.stage = Stage(run, names)
        self.chance = random.Random(run.cluster.seed)
        self.began = time.monotonic()
        self.counts: dict[str, int] = {}
        if "clock" in self.faults:
            run.cluster.clock(names[0])
        if "cable" in self.faults:
            run.cluster.wired = names[-1]
        for name in names:
            if name != run.cluster.wired:
                for server in ("postgres", "redis"):
                    run.cluster.proxy(name, server)
        run.begin(*names, rate=rate, entities=entities)

    def round(self, stages: int) -> Report:
        """Make some stages, then judge. Raises AssertionError with what is broken."""
        for _ in range(stages):
            self.one_stage()
        return self.run.finish()

    def one_stage(self) -> None:
        """Make one to three faults, undo them, and see all heal."""
        steps: list[tuple[float, int, str]] = []
        for number in range(self.chance.choice([1, 1, 2, 3])):
            weights = [FAULTS[name][1] for name in self.faults]
            name = self.chance.choices(self.faults, weights)[0]
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
                made[number] = FAULTS[name][0](self.stage)
                touched.append(made[number].what)
                self._tell(made[number].what)
            elif number in made:
                made[number].undo()
                self._tell(f"undone: {made[number].what}")
        self._heal(touched)

    def _heal(self, touched: list[str]) -> None:
        run, cluster = self.run, self.run.cluster
        standby_again(cluster.servers)
        at = time.monotonic()
        for name in self.stage.names:
            cluster.nodes[name].wait_up()
        cluster.wait_members(*self.stage.names, seconds=HEAL_SECONDS)
        up = time.monotonic()
        run.wait_answers(up, seconds=HEAL_SECONDS)
        for name in self.stage.names:
            assert "a bug:" not in cluster.nodes[name].recent(), (
                f"{name} speaks of a bug, after {'; '.join(touched)}"
            )
        self._tell(
            f"healed: all nodes up after {up - at:.1f} s, all answer after {time.monotonic() - at:.1f} s"
        )

    def _tell(self, what: str) -> None:
        self.say(f"{time.monotonic() - self.began:8.1f} s  round {self.run.round_number}  {what}")
