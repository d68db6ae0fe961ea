"""Hold a client's transaction where it is, on PostgreSQL and on the virtual server, and see what
the others do meanwhile.

A gate is shut for one client at one place: at its commit, or between its rows and their fence. What
is held there keeps its locks until the gate is opened, or its session is ended. Nothing here waits
for a time: a client is looked at until it is at rest, and what is at rest stays so until a gate
moves.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import psycopg

from sharding_app.adapters.memory import MemoryServer
from sharding_app.adapters.memory.locks import Lock, Owner
from sharding_app.adapters.memory.steps import Pause
from tests.support.given import until

Place = Literal["work", "commit"]
Rest = Literal["answered", "held", "waits"]
BY_TURN: tuple[Rest, ...] = "answered", "held", "waits"
GATE = 7771
"""Tells the locks of the gates from all others."""
GUARDED = (
    "cluster", "coordinator", "node", "type", "shard", "event", "snapshot", "remembered", "lease", "location",
    "message", "taken",
)  # fmt: skip
FENCED = ("event", "snapshot", "remembered")

FUNCTION = """
CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $gate$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7771, hashtext(
        split_part(current_setting('application_name'), '/', 2) || '/' || TG_ARGV[0]));
    RETURN NULL;
END
$gate$;
"""
AT_COMMIT = """
CREATE CONSTRAINT TRIGGER gate_of_commits AFTER INSERT OR UPDATE OR DELETE ON sharding_{table}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION gate('commit');
"""
AT_WORK = """
CREATE TRIGGER a_gate_before_the_fence AFTER INSERT OR UPDATE ON sharding_{table}
    FOR EACH STATEMENT EXECUTE FUNCTION gate('work');
"""
WAITING = """
SELECT a.pid, split_part(a.application_name, '/', 2), l.locktype = 'advisory', pg_blocking_pids(a.pid)
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE NOT l.granted AND a.datname = current_database();
"""


class Gates(Protocol):
    """What a test does with the clients of one world."""

    async def shut(self, client: str, place: Place) -> None: ...

    async def open(self, client: str, place: Place) -> None: ...

    async def end(self, client: str) -> None:
        """End the session of what the client has under way, and return when nothing of it is
        left.
        """
        ...

    async def rest(self, client: str, answer: asyncio.Task[Any]) -> Rest | None:
        """Return where the client's request is at rest; None: it is on its way."""
        ...


async def at_rest(gates: Gates, client: str, answer: asyncio.Task[Any]) -> Rest:
    found: list[Rest] = []

    async def rests() -> bool:
        rest = await gates.rest(client, answer)
        if rest is not None:
            found.append(rest)
        return bool(found)

    await until(rests, 60)
    return found[0]


class PostgresGates:
    def __init__(self, params: dict[str, Any]) -> None:
        self._params = params

    async def __aenter__(self) -> "PostgresGates":
        self._admin = await psycopg.AsyncConnection.connect(**self._params, autocommit=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._admin.close()

    async def shut(self, client: str, place: Place) -> None:
        await self._admin.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", [GATE, f"{client}/{place}"])

    async def open(self, client: str, place: Place) -> None:
        await self._admin.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", [GATE, f"{client}/{place}"])

    async def end(self, client: str) -> None:
        for pid, owner, _, _ in await self._waiting():
            if owner == client:
                await self._admin.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])

    async def rest(self, client: str, answer: asyncio.Task[Any]) -> Rest | None:
        waiting = {pid: each for pid, *each in await self._waiting()}
        if answer.done():
            return "answered"
        for pid, (owner, at_gate, _) in waiting.items():
            if owner == client and self._leads_to_a_gate(pid, waiting, set()):
                return "held" if at_gate else "waits"
        return None

    def _leads_to_a_gate(self, pid: int, waiting: dict[int, list[Any]], seen: set[int]) -> bool:
        """Who is at a gate stays there, and so does who waits for it, or for one who does."""
        if pid not in waiting or pid in seen:
            return False
        _, at_gate, blockers = waiting[pid]
        seen = {*seen, pid}
        return at_gate or (
            bool(blockers) and all(self._leads_to_a_gate(each, waiting, seen) for each in blockers)
        )

    async def _waiting(self) -> list[tuple[Any, ...]]:
        cursor = await self._admin.execute(WAITING)
        return await cursor.fetchall()


def make_gates(params: dict[str, Any]) -> None:
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute(FUNCTION.encode())
        for table in GUARDED:
            admin.execute(AT_COMMIT.format(table=table).encode())
        for table in FENCED:
            admin.execute(AT_WORK.format(table=table).encode())


class MemoryGates:
    """Its `server` takes no time for a step, but for ever where a gate is shut."""

    FOR_EVER = 1e9

    def __init__(self) -> None:
        self.server = MemoryServer(pace=self._pace, later=self._later)
        self._shut: set[tuple[str, Place]] = set()
        self._arriving = ""
        self._held: dict[str, Callable[[], object]] = {}
        self._late: set[str] = set()
        "Clients that wait on PostgreSQL once the next one has gone on."

    async def shut(self, client: str, place: Place) -> None:
        self._shut.add((client, place))

    async def open(self, client: str, place: Place) -> None:
        self._shut.discard((client, place))
        go_on = self._held.pop(client, None)
        if go_on is not None:
            with self._late_ones_last():
                go_on()

    async def end(self, client: str) -> None:
        self._held.pop(client, None)
        with self._late_ones_last():
            for session in self.server.sessions.of(client):
                if session.transaction is not None:
                    self.server.sessions.end(session)

    async def rest(self, client: str, answer: asyncio.Task[Any]) -> Rest | None:
        if answer.done():
            return "answered"
        if client in self._held:
            return "held"
        return "waits" if self.server.locks.waits([client]) else None

    def follow(self, rests: Mapping[str, Rest]) -> None:
        """Where several wait for rows that get new versions, PostgreSQL lets them race. Where they
        came to afterwards tells who won: one that has answered had a row before one that is held
        with it, and that one before those that wait still.
        """

        def place(item: tuple[Owner, Lock]) -> int:
            rest = rests.get(item[0].name)
            return len(BY_TURN) if rest is None else BY_TURN.index(rest)

        for row in self.server.locks._rows.values():
            row.waiting = dict(sorted(row.waiting.items(), key=place))
        self._late = {client for client, rest in rests.items() if rest == "waits"}

    @contextmanager
    def _late_ones_last(self) -> Iterator[None]:
        """Let those that have lost the race wake up when the others have come to their rest."""
        put_off: list[tuple[Owner, Lock]] = []
        for row in self.server.locks._rows.values():
            for owner, lock in list(row.waiting.items()):
                if owner.name in self._late:
                    del row.waiting[owner]
                    if owner not in row.holders:
                        del self.server.locks._held[owner][lock.key]
                    put_off.append((owner, lock))
        self._late = set()
        yield
        for owner, lock in put_off:
            if self.server.locks.take(owner, lock):
                owner.granted()

    def _pace(self, client: str, kind: str, step: Pause) -> float:
        if (client, step.value) not in self._shut:
            return 0.0
        self._arriving = client
        return self.FOR_EVER

    def _later(self, delay: float, callback: Callable[[], object]) -> object:
        if delay == self.FOR_EVER:
            self._held[self._arriving] = callback
            return None
        return asyncio.get_running_loop().call_later(delay, callback)
