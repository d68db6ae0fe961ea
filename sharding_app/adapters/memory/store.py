"""`ports.store.ClusterStore` over the virtual server."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.journal_rows import lock_timeout
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost, ServerError
from sharding_app.core.ids import Incarnation, ShardId, Term
from sharding_app.core.records import (
    Backend,
    CoordinatorRow,
    Decision,
    HomeChange,
    LeaveRequest,
    Member,
    MemberState,
    News,
    Server,
    ShardRow,
    TypeConfig,
)
from sharding_app.ports.store import StoreUnavailable

T = TypeVar("T")

LOCK_SECONDS = 1.0
"""So long a decision waits for the rows of its shards."""


class MemoryStore:
    def __init__(self, server: MemoryServer, client: str = "client") -> None:
        self._server = server
        self._rows = server.cluster
        self.connection = Connection(server, client, line="control")

    @property
    def backends(self) -> tuple[Backend, ...]:
        session = self.connection.session
        return () if session is None else (session.backend,)

    async def cluster_id(self) -> str:
        return await self._ask("cluster_id", lambda: self._server.cluster_id)

    async def register_types(
        self, configs: Sequence[TypeConfig]
    ) -> tuple[dict[str, int], dict[str, TypeConfig]]:
        return await self._ask("register_types", lambda: self._rows.register_types(configs))

    async def type_ids(self) -> dict[str, int]:
        return await self._ask("type_ids", lambda: dict(self._rows.type_ids))

    async def types(self) -> list[TypeConfig]:
        return await self._ask("types", lambda: [self._rows.types[name] for name in sorted(self._rows.types)])

    async def join(self, member: Member, lock_keys: tuple[int, int]) -> int:
        return await self._ask("join", lambda: self._rows.join(member, lock_keys))

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
        return await self._ask(
            "update_member",
            lambda: self._rows.update_member(incarnation, state, deaf, server, unsettled, member),
        )

    async def come_back(
        self, incarnation: Incarnation, server: Server | None
    ) -> tuple[Server, list[ShardRow]] | None:
        def come_back() -> tuple[Server, list[ShardRow]] | None:
            if not self._rows.update_member(incarnation, None, None, server, server is None, None):
                return None
            return self._server.identity, [row for row in self._rows.rows(None) if row.home == incarnation]

        return await self._ask("come_back", come_back)

    async def leave(self, incarnation: Incarnation) -> None:
        await self._ask("leave", lambda: self._rows.leave(incarnation))

    async def members(self) -> tuple[Server, list[Member]]:
        return await self._ask("members", lambda: (self._server.identity, self._rows.with_locks()))

    async def coordinator(self) -> CoordinatorRow:
        return await self._ask("coordinator", lambda: self._rows.coordinator)

    async def news(self, incarnation: Incarnation) -> News:
        def news() -> News:
            row, member = self._rows.coordinator, self._rows.members.get(incarnation)
            if member is None:
                return News(row.term, row.incarnation, None, None, False)
            return News(row.term, row.incarnation, member.asked, member.state, member.deaf)

        return await self._ask("news", news)

    async def shards(self, types: Sequence[str] | None = None) -> list[ShardRow]:
        return await self._ask("shards", lambda: self._rows.rows(types))

    async def homes(self, type_name: str, shards: Sequence[ShardId]) -> list[ShardRow]:
        wanted = frozenset(shards)
        return await self._ask(
            "homes", lambda: [row for row in self._rows.rows([type_name]) if row.shard in wanted]
        )

    async def homes_of(self, incarnation: Incarnation) -> list[ShardRow]:
        return await self._ask(
            "homes_of", lambda: [row for row in self._rows.rows(None) if row.home == incarnation]
        )

    async def locate(self, type_name: str, locations: Mapping[ShardId, str]) -> bool:
        return await self._ask("locate", lambda: self._rows.locate(type_name, locations))

    async def locations(
        self, type_name: str, known: int | None = None
    ) -> tuple[int, dict[ShardId, str]] | None:
        return await self._ask("locations", lambda: self._rows.located(type_name, known))

    async def ask_to(
        self, request: LeaveRequest | None, incarnations: Sequence[Incarnation], by: str = ""
    ) -> list[Incarnation]:
        return await self._ask("ask_to", lambda: self._rows.ask_to(request, incarnations))

    async def decide(self, term: Term, changes: Sequence[HomeChange]) -> list[ShardRow]:
        def decide() -> list[ShardRow]:
            types = self._rows.type_ids
            if self._server.journal.locked_among(
                (types[each.type], each.shard) for each in changes if each.type in types
            ):
                raise lock_timeout(LOCK_SECONDS)
            return self._rows.decide(term, changes)

        return await self._ask("decide", decide)

    async def bury(self, term: Term, incarnation: Incarnation) -> bool:
        def bury() -> bool:
            self._rows.check_term(term)
            if self._rows.is_locked(incarnation):
                return False
            # Its connections are named after it, whatever its row says of them. One that may not be ended holds nothing up.
            self._server.end_those_of(incarnation)
            self._rows.leave(incarnation)
            return True

        return await self._ask("bury", bury)

    async def record(self, decisions: Sequence[Decision]) -> None:
        await self._ask("record", lambda: self._rows.timeline.extend(decisions))

    async def close(self) -> None:
        self.connection.close()

    async def _ask(self, kind: str, request: Callable[[], T]) -> T:
        try:
            return await self.connection.reach(kind, request)
        except ConnectionLost as error:
            raise StoreUnavailable(str(error)) from error
        except ServerError as error:
            raise StoreUnavailable(str(error), answered=True) from error
