"""One random life of an in-memory cluster: commands, retries and faults as they come, and a
judgement at the end.

All methods but `run` are coroutines on the life's own virtual loop. Nothing is asserted while
faults go on but what holds at any time; `settle` ends the faults, waits until every call is
answered, and compares everything with the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from sharding_app import ShardingError
from sharding_app.ports.journal import EventRow
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.messages import OperatorRequest
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster
from tests.simulation.lives import ledgers
from tests.simulation.lives.history_rules import Attempt, Call, check_entity, fold
from tests.simulation.lives.ledgers import KINDS, SHARDS, Diary, Kind, part, said
from tests.simulation.lives.trouble import ListTogether, Trouble, VirtualLoop

T = TypeVar("T")
Key = tuple[str, str]

WINDOW_SECONDS = 20.0
ASK_SECONDS = 8.0
RETENTION_SECONDS = 7.0
LAST_SECONDS = 60.0
MOST_NODES = 3
CONFIG = NodeConfig(
    number_of_shards=SHARDS, command_window_seconds=WINDOW_SECONDS, ask_timeout_seconds=ASK_SECONDS,
    retention_interval_seconds=RETENTION_SECONDS,
)  # fmt: skip


class Life:
    window = WINDOW_SECONDS
    sees_commits = True
    "Whether `logs` holds each commit in the moment when it happens."

    def __init__(self, kinds: Sequence[Kind] = KINDS, loop: TravelLoop | None = None) -> None:
        self.kinds = kinds
        self.loop = loop or VirtualLoop()
        self.calls: dict[Key, list[Call]] = {}
        self.logs: dict[Key, list[EventRow]] = {}
        self._names: dict[int, str] = {}
        self._open: set[asyncio.Task[None]] = set()
        self._acknowledged: dict[Key, int] = {}
        self._tokens = 0
        self._stack = contextlib.ExitStack()
        self.cluster: MemoryCluster
        self.trouble: Trouble

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    # -- Beginning and end -------------------------------------------------------------------------

    async def begin(self, nodes: int = 2) -> None:
        ledgers.rows.clear()
        self.cluster = MemoryCluster(self.kinds, nodes=nodes, config=CONFIG, make_together=ListTogether)  # type: ignore[arg-type] # it reaches into the in-memory journal
        self.trouble = self.cluster.server.faults = Trouble(self.cluster._faults)
        self.cluster.network.faults = self.trouble
        self.cluster.server.journal.on_commit = self._committed
        await self.loop.hurry(self.cluster.start())
        self._names = {number: name for name, number in self.cluster.server.cluster.type_ids.items()}
        self._stack.enter_context(self.cluster.in_use())

    async def end(self) -> None:
        for task in self._open:
            task.cancel()
        await self.loop.hurry(self.cluster.close())
        self._stack.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def close(self) -> None:
        self.loop.close()

    # -- Calls -------------------------------------------------------------------------------------

    def call(self, kind: Kind, entity: str, operation: str, *, named: bool) -> Call:
        """Make a call and go on without its answer."""
        self._tokens += 1
        token = f"t{self._tokens}"
        made = Call(operation, token, f"id-{token}" if named else "", self.loop.time())
        self.calls.setdefault((_name(kind), entity), []).append(made)
        self.again(kind, entity, made)
        return made

    def again(self, kind: Kind, entity: str, made: Call) -> None:
        """The same call once more."""
        attempt = Attempt(self._acknowledged.get((_name(kind), entity), 0))
        made.attempts.append(attempt)
        task = self.loop.create_task(self._ask(kind, entity, made, attempt))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    def repeatable(self, kind: Kind, entity: str) -> list[Call]:
        """Calls whose ids are still remembered."""
        calls = self.calls.get((_name(kind), entity), [])
        return [each for each in calls if each.command_id and self.loop.time() - each.at < self.window]

    async def _ask(self, kind: Kind, entity: str, made: Call, attempt: Attempt) -> None:
        key = _name(kind), entity
        ref = kind.ref(entity, command_id=made.command_id or None)
        arguments = (made.token,) if made.operation in ledgers.PARTS else ()
        try:
            attempt.reply = await getattr(ref, made.operation)(*arguments)
        except ShardingError as error:
            attempt.error = error
        else:
            if self.sees_commits:
                attempt.ceiling = len(fold(self.logs.get(key, ()), durable=issubclass(kind, Diary)))
            seen = int(attempt.reply.partition(":")[0])
            self._acknowledged[key] = max(seen, self._acknowledged.get(key, 0))
        attempt.done = True

    # -- What happens to the cluster ---------------------------------------------------------------

    async def pass_time(self, seconds: float) -> None:
        if seconds:
            await self.loop.travel(seconds)
        else:
            await asyncio.sleep(0)
        await self._replace_the_dead()

    async def add_node(self) -> None:
        if len(self.cluster.nodes) < MOST_NODES:
            await self.cluster.add_node()

    async def lose_node(self, which: int, how: str) -> None:
        """A node that can be spared is killed, or leaves in order, or goes on and reaches no other
        process.
        """
        names = sorted(name for name in self.cluster.nodes if not self._is_cut_off(name))
        if len(names) < 2:
            return
        name = names[which % len(names)]
        if how == "kill":
            await self.cluster.kill_node(name)
        elif how == "stop":
            await self.cluster.stop_node(name)
        else:
            self.cluster.cut_off(name)
        await self._replace_the_dead()

    async def move(self, kind: Kind, entity: str, which: int) -> None:
        """An operator has the entity's shard moved, while its commands go on."""
        names = sorted(self.cluster.nodes)
        target = self.cluster.nodes[names[which % len(names)]].incarnation
        try:
            coordinator = (await self.cluster.client.ports.store.coordinator()).incarnation
        except StoreUnavailable:
            return
        if coordinator is not None:
            request = OperatorRequest(
                0, "move", _name(kind), shard_of(entity, SHARDS), target=target, by="a test"
            )
            await self.loop.hurry(self.cluster.client.queries.operate(coordinator, request, timeout=1.0))

    async def restart_server(self, seconds: float) -> None:
        self.cluster.server.stop()
        await self.loop.travel(seconds)
        self.cluster.server.start()

    # -- Judgement ---------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Let all faults end and all calls be answered; then compare replies, state, snapshots and
        journal.
        """
        self.trouble.over()
        deadline = self.loop.time() + LAST_SECONDS
        while self._open:
            assert self.loop.time() < deadline, f"not answered: {len(self._open)}"
            await self.pass_time(0.5)
        written: list[str] = []
        await self.read_logs()
        for kind in self.kinds:
            for key in [each for each in self.calls if each[0] == _name(kind)]:
                log, calls = self.logs.get(key, []), self.calls[key]
                tokens = check_entity(log, calls, durable=issubclass(kind, Diary))
                self._check_snapshots(kind, key[1], log)
                rows = {part(each.token, 1) for each in calls if each.operation == "with_row"}
                written += rows.intersection(tokens)
        assert sorted(ledgers.rows) == sorted(written), "rows without events, or events without rows"

    async def read_logs(self) -> None:
        """Have in `logs` whatever was committed: here each commit tells of itself."""

    async def look(self) -> None:
        """Ask every entity for its state: that of its journal's fold."""
        for kind in self.kinds:
            for name, entity in [each for each in self.calls if each[0] == _name(kind)]:
                ref = kind.ref(entity, timeout=LAST_SECONDS)
                found = await self.loop.hurry(ref.total())
                tokens = fold(self.logs.get((name, entity), ()), durable=issubclass(kind, Diary))
                assert found == said(tokens), f"{name} {entity}: not the fold of its journal: {tokens}"

    async def recover(self) -> None:
        """Throw every object away, and look again."""
        self.cluster.forget()
        await self.look()

    # -- Inside ------------------------------------------------------------------------------------

    def _committed(self, rows: Sequence[EventRow]) -> None:
        for row in rows:
            self.logs.setdefault((self._names[row.type_id], row.entity), []).append(row)

    def _check_snapshots(self, kind: Kind, entity: str, log: Sequence[EventRow]) -> None:
        for snapshot in self.cluster.snapshots(kind, entity):
            tokens = json.loads(snapshot.state)["tokens"]
            assert tokens == fold(log[: snapshot.seq], durable=False), (
                f"snapshot {snapshot.seq} is not the fold"
            )

    async def _replace_the_dead(self) -> None:
        for name, node in list(self.cluster.nodes.items()):
            if node.ended.done():
                await self.cluster.kill_node(name)
        while not [name for name in self.cluster.nodes if not self._is_cut_off(name)]:
            await self.cluster.add_node()

    def _is_cut_off(self, name: str) -> bool:
        return self.cluster.nodes[name].incarnation in self.cluster._faults.killed


def _name(kind: Kind) -> str:
    made = kind._sharding_type
    assert made is not None
    return made.name
