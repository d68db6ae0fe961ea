"""`ports.store.ClusterStore` over the virtual server."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sharding_app.adapters.memory.cluster_writes import ClusterWrites
from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost, ServerError
from sharding_app.adapters.memory.steps import Steps, at_once
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, Term
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import (
    Backend,
    ClosedShard,
    CoordinatorRow,
    Decision,
    HomeChange,
    LeaveRequest,
    Member,
    MemberState,
    News,
    NumberOfWorkers,
    Server,
    ShardRow,
    StoredShard,
    TypeConfig,
)

T = TypeVar("T")

ROWS_AT_ONCE = 10_000
LOCK_SECONDS = 1.0
"""Seconds that its statements wait for a row."""


class MemoryStore:
    def __init__(
        self, server: MemoryServer, client: str = "client", *, lock_seconds: float = LOCK_SECONDS
    ) -> None:
        self._server = server
        self._rows = server.cluster
        self._writes = ClusterWrites(server)
        self.connection = Connection(server, client, line="control", lock_seconds=lock_seconds)

    @property
    def backends(self) -> tuple[Backend, ...]:
        session = self.connection.session
        return () if session is None else (session.backend,)

    async def cluster_id(self) -> str:
        return await self._ask("cluster_id", lambda: self._server.cluster_id)

    async def register_types(
        self, configs: Sequence[TypeConfig]
    ) -> tuple[dict[str, int], dict[str, TypeConfig]]:
        return await self._write("register_types", lambda: self._writes.register_types(configs))

    async def type_ids(self) -> dict[str, int]:
        return await self._ask("type_ids", lambda: dict(self._rows.type_ids))

    async def types(self) -> list[TypeConfig]:
        return await self._ask("types", lambda: [self._rows.types[name] for name in sorted(self._rows.types)])

    async def types_in_force(self) -> list[TypeConfig]:
        return await self.types()  # no data is removed here

    async def join(self, member: Member, lock_keys: tuple[int, int]) -> int:
        return await self._write("join", lambda: self._writes.join(member, lock_keys))

    async def update_member(
        self,
        incarnation: Incarnation,
        *,
        state: MemberState | None = None,
        deaf: bool | None = None,
        server: Server | None = None,
        unsettled: bool = False,
        member: Member | None = None,
    ) -> bool:
        return await self._write(
            "update_member",
            lambda: self._writes.update_member(incarnation, state, deaf, server, unsettled, member),
        )

    async def come_back(
        self, incarnation: Incarnation, server: Server | None
    ) -> tuple[Server, list[ShardRow]] | None:
        return await self._write("come_back", lambda: self._writes.come_back(incarnation, server))

    async def leave(self, incarnation: Incarnation) -> None:
        await self._write("leave", lambda: self._writes.leave(incarnation))

    async def members(self) -> tuple[Server, list[Member]]:
        return await self._ask("members", lambda: (self._server.identity, self._rows.with_locks()))

    async def coordinator(self) -> CoordinatorRow:
        return await self._ask("coordinator", self._rows.coordinator_row)

    async def news(self, incarnation: Incarnation) -> News:
        def news() -> News:
            row, member = self._rows.coordinator, self._rows.members.get(incarnation)
            used = self._rows.any_uses_messages()
            numbers = self._rows.numbers
            if member is None:
                return News(row.term, row.incarnation, None, None, False, used, numbers)
            return News(row.term, row.incarnation, member.asked, member.state, member.deaf, used, numbers)

        return await self._ask("news", news)

    async def shards(self, types: Sequence[str] | None = None) -> list[ShardRow]:
        return await self._ask("shards", lambda: self._rows.rows(types))

    async def homes(self, type_name: str, shards: Sequence[ShardId]) -> list[ShardRow]:
        wanted = frozenset(shards)
        return await self._ask("homes", lambda: self._rows.homes(type_name, wanted))

    async def home_counts(self) -> dict[Incarnation, int]:
        return await self._ask(
            "home_counts",
            lambda: dict(Counter(row.home for row in self._rows.rows(None) if row.home is not None)),
        )

    async def locate(self, type_name: str, locations: Mapping[ShardId, str]) -> bool:
        return await self._write("locate", lambda: self._writes.locate(type_name, locations))

    async def locations(
        self, type_name: str, known: int | None = None
    ) -> tuple[int, dict[ShardId, str]] | None:
        return await self._ask("locations", lambda: self._rows.located(type_name, known))

    async def journal_place(self, name: str, place: str) -> tuple[str, str]:
        # All virtual servers say the same of themselves, so their places tell nothing apart.
        known = await self._ask("journal_place", lambda: self._rows.places.setdefault(name, place))
        return name, known

    async def use_journal(self, incarnation: Incarnation, name: str, place: str | None) -> str | None:
        return await self._ask("use_journal", lambda: self._rows.use_journal(incarnation, name, place))

    async def journals_in_use(self, *, but: Incarnation) -> frozenset[str]:
        return await self._ask("journals_in_use", lambda: self._rows.journals_in_use(but))

    async def journals_used(self) -> frozenset[str]:
        return await self._ask("journals_used", self._rows.journals_used)

    async def shard_journals(self, type_id: int) -> dict[ShardId, str]:
        def read() -> dict[ShardId, str]:
            self._rows.check_journals(self._server.identity.lineage)
            return self._rows.shard_journals(type_id)

        return await self._ask("shard_journals", read)

    async def journals_to_read(self) -> frozenset[str] | None:
        return await self._ask(
            "journals_to_read", lambda: self._rows.journals_to_read(self._server.identity.lineage)
        )

    async def restore_shards(self, term: Term, read: frozenset[str], found: Sequence[StoredShard]) -> bool:
        return await self._write("restore_shards", lambda: self._writes.restore_shards(term, read, found))

    async def introduce_workers(self, numbers: Mapping[str, int]) -> None:
        await self._write("introduce_workers", lambda: self._writes.introduce_workers(numbers))

    async def workers(self) -> list[NumberOfWorkers]:
        return await self._ask("workers", lambda: [each for _, each in sorted(self._rows.workers.items())])

    async def rescale(self, type_name: str, workers: int, by: str = "") -> NumberOfWorkers | None:
        return await self._write("rescale", lambda: self._writes.rescale(type_name, workers))

    async def put_in_force(self, term: Term, before: NumberOfWorkers) -> NumberOfWorkers | None:
        return await self._write("put_in_force", lambda: self._writes.put_in_force(term, before))

    async def resize(self, type_name: str, known: int, wanted: int, by: str = "") -> bool:
        return await self._write("resize", lambda: self._writes.resize(type_name, known, wanted))

    async def renumber(
        self,
        term: Term,
        type_name: str,
        before: Numbering,
        upto: int,
        least_epoch: Epoch,
        at_most: int = ROWS_AT_ONCE,
    ) -> tuple[Numbering, list[ShardRow]] | None:
        return await self._write(
            "renumber",
            lambda: self._writes.renumber(term, type_name, before, upto, least_epoch, at_most),
        )

    async def refile(self, term: Term) -> None:
        await self._write("refile", self._writes.refile)

    async def begin_move(self, type_id: int, shards: Sequence[ShardId], target: str) -> list[ShardId]:
        return await self._write("begin_move", lambda: self._writes.begin_move(type_id, shards, target))

    async def close_shards(self, type_id: int, shards: Sequence[ShardId], seconds: float) -> list[ShardId]:
        return await self._write("close_shards", lambda: self._writes.close_shards(type_id, shards, seconds))

    async def renew_closings(self, type_id: int, shards: Sequence[ShardId], seconds: float) -> list[ShardId]:
        return await self._write(
            "renew_closings", lambda: self._writes.renew_closings(type_id, shards, seconds)
        )

    async def open_shards(self, type_id: int, shards: Sequence[ShardId]) -> list[ShardId]:
        return await self._write("open_shards", lambda: self._writes.open_shards(type_id, shards))

    async def closed_shards(self) -> list[ClosedShard]:
        return await self._ask("closed_shards", self._rows.closed)

    async def open_lapsed(self, term: Term) -> list[ClosedShard]:
        return await self._write("open_lapsed", lambda: self._writes.open_lapsed(term))

    async def ask_to(
        self, request: LeaveRequest | None, incarnations: Sequence[Incarnation], by: str = ""
    ) -> list[Incarnation]:
        return await self._write("ask_to", lambda: self._writes.ask_to(request, incarnations))

    async def decide(self, term: Term, changes: Sequence[HomeChange]) -> list[ShardRow]:
        return await self._write("decide", lambda: self._writes.decide(term, changes))

    async def bury(self, term: Term, incarnation: Incarnation) -> bool:
        return await self._write("bury", lambda: self._writes.bury(term, incarnation))

    async def record(self, decisions: Sequence[Decision]) -> None:
        await self._ask("record", lambda: self._rows.record(decisions))

    async def close(self) -> None:
        self.connection.close()

    async def _ask(self, kind: str, request: Callable[[], T]) -> T:
        return await self._write(kind, lambda: at_once(request))

    async def _write(self, kind: str, request: Callable[[], Steps[T]]) -> T:
        try:
            return await self.connection.reach(kind, request)
        except ConnectionLost as error:
            raise StoreUnavailable(str(error)) from error
        except ServerError as error:
            raise StoreUnavailable(str(error), answered=True) from error
