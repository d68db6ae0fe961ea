"""A process that holds a lifeline and writes down, a JSON line each, what it is told and whether
its lease is valid.

python -m tests.acceptance.lifeline_holder CONNINFO CLUSTER INCARNATION TTL OWN_LIMIT
"""

import asyncio
import json
import sys

from psycopg.conninfo import conninfo_to_dict

from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.ports.lifeline import Pulse
from sharding_app.protocol.liveness.locks import lifeline_keys
from sharding_app.protocol.liveness.node_lease import Lease
from sharding_app.protocol.records import Lineage, Member, Server
from sharding_app.runtime.base.clock import BootClock
from sharding_app.runtime.base.config import LifelineSettings
from sharding_app.runtime.liveness.thread import LifelineThread


class Holder:
    def __init__(self, conninfo: dict[str, str], cluster: str, me: str, ttl: float, own: float) -> None:
        self.clock = BootClock()
        self.me = me
        self.keys = lifeline_keys(cluster, me)
        self.store = PostgresStore(conninfo, owner=me)
        sessions = (
            PostgresLifelineSession(conninfo, cluster_id=cluster, owner=me, ttl_seconds=ttl),
            PostgresLifelineSession(conninfo, cluster_id=cluster, owner=me, number=1, ttl_seconds=ttl),
        )
        settings = LifelineSettings(ping_interval_seconds=own / 4, answer_timeout_seconds=own)
        self.lifeline = LifelineThread(sessions, self.clock, Lease(own, ttl), self.keys, me, settings, self)
        self.jobs: set[asyncio.Task[None]] = set()

    def say(self, what: str, **more: object) -> None:
        now = self.clock.now()
        valid = self.lifeline.lease.is_valid(now)
        print(json.dumps({"what": what, "at": now, "valid": valid, **more}), flush=True)

    def on_valid(self) -> None:
        self.say("valid")

    def on_settled(self, server: Server) -> None:
        self.say("settled", run=server.started)

    def on_suspended(self) -> None:
        self.say("suspended")

    def on_back(self, generation: int, settled: Server | None, lineage: Lineage) -> None:
        self.say("back")
        job = asyncio.get_running_loop().create_task(self.resume(generation))
        self.jobs.add(job)
        job.add_done_callback(self.jobs.discard)

    async def resume(self, generation: int) -> None:
        self.say("resumed" if await self.lifeline.resume(generation) else "not resumed")

    def on_elected(self, term: int) -> None:
        self.say("elected", term=term)

    def on_deposed(self) -> None:
        self.say("deposed")

    def on_pulse(self, pulse: Pulse) -> None: ...

    async def run(self) -> None:
        member = Member(incarnation=self.me, name=self.me, host="h", pid=1, age=0, state="up")
        await self.store.join(member, self.keys)
        self.lifeline.start()
        self.lifeline.set_candidate(True)
        valid = False
        while True:
            # What a main loop does before each batch: the first look after a stop must already say
            # no.
            now = self.lifeline.lease.is_valid(self.clock.now())
            if now != valid:
                valid = now
                self.say("looks valid" if valid else "looks invalid")
            await asyncio.sleep(0.002)


if __name__ == "__main__":
    given = {name: str(value) for name, value in conninfo_to_dict(sys.argv[1]).items()}
    asyncio.run(Holder(given, sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5])).run())
