"""The mixed runs of `sharding_app.torture`, with faults of the servers, clocks, disks and cables as
well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sharding_app.torture import mixed
from sharding_app.torture.mixed import NAMES
from sharding_app.torture.scenario import Report
from tests.acceptance.faults import FAULTS, STALLS, possible, standby_again
from tests.acceptance.mover import Mover
from tests.acceptance.scenario import Scenario


class Mixed(mixed.Mixed):
    """A cluster whose nodes reach their servers through proxies, the last through a cable, and
    sum up the accounts in a projection.
    """

    def __init__(
        self,
        run: Scenario,
        say: Callable[[str], object],
        faults: Sequence[str] = (),
        names: tuple[str, ...] = NAMES,
        rate: float = 300,
        entities: int = 1000,
        moves: bool = False,
    ) -> None:
        """`moves`: shards move between the journals all the time."""
        unknown = set(faults) - set(FAULTS)
        if unknown:
            raise ValueError(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
        cluster = run.cluster
        servers = cluster.servers
        known = possible(
            standby=servers.pair is not None,
            journals=bool(servers.journals),
            cable=servers.cable is not None,
        )
        chosen = {name: fault for name, fault in known.items() if not faults or name in faults}
        if "hang" in chosen:
            cluster.sharding |= STALLS
        if "clock" in chosen:
            cluster.clock(names[0])
        run.project()
        if "cable" in chosen:
            cluster.wired = names[-1]
        for name in names:
            if name != cluster.wired:
                for server in ("postgres", "redis"):
                    cluster.proxy(name, server)
        super().__init__(
            run, say, chosen, names, rate=rate, entities=entities,
            mend=lambda: standby_again(cluster.servers),
        )  # fmt: skip
        types = (cluster.type_name, cluster.accounts)
        self.mover = Mover(cluster, types, cluster.seed) if moves else None
        if self.mover is not None:
            run.moved = self.mover.shards[cluster.type_name]

    def round(self, stages: int) -> Report:
        """As without moves; while the journals are read and compared, nothing moves."""
        if self.mover is not None:
            self.mover.begin()
        for _ in range(stages):
            self.one_stage()
        if self.mover is not None:
            self.mover.settle()
        return self.run.finish()
