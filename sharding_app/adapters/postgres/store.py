"""`ports.store.ClusterStore` on PostgreSQL: one connection, one statement for each call.

Every statement has a short lock timeout: none waits long inside the server. The coordinator's
writes go through functions that lock the term's row first (`migrations/sql/0001_coordinator.sql`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from psycopg.types.json import Json

from sharding_app.adapters.postgres.connection import Conninfo, Line
from sharding_app.adapters.postgres.errors import (
    LOST,
    STALE_TERM,
    UNSENDABLE,
    explain,
    has_failed,
    is_refused,
)
from sharding_app.ports.store import StaleTerm, StoreRefused, StoreUnavailable
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, Term
from sharding_app.protocol.journals import journal_of
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

TIMELINE_LINES = 1000
"""Lines of the timeline that are kept of each action."""
ROWS_AT_ONCE = 10_000
"""Rows of a table that one statement gives other shards."""
INSUFFICIENT_PRIVILEGE = "42501"


class PostgresStore:
    def __init__(
        self,
        conninfo: Conninfo,
        *,
        owner: str = "",
        connect_seconds: float = 5.0,
        answer_seconds: float = 5.0,
        lock_timeout_seconds: float = 1.0,
        pooled: bool = False,
        journals: Mapping[str, float] | None = None,
    ) -> None:
        """With `pooled`, the way may lead through a transaction pooler: for proxies only, never for
        nodes. `journals`: the weights by which new shards are spread over them.
        """
        self._journals = journals or {}
        self._line = Line(
            conninfo,
            purpose="control",
            owner=owner,
            connect_seconds=connect_seconds,
            answer_seconds=answer_seconds,
            settings={"lock_timeout": f"{round(lock_timeout_seconds * 1000)}ms"},
            pooled=pooled,
            ends_former=True,
        )

    @property
    def backends(self) -> tuple[Backend, ...]:
        """The server process that writes for this store, while it is connected."""
        return (self._line.backend,) if self._line.is_open and self._line.backend else ()

    async def open(self) -> tuple[Backend, ...]:
        """Connect now rather than at the first use."""
        try:
            return (await self._line.open(),)
        except LOST as error:
            raise StoreUnavailable(explain(error)) from error

    async def cluster_id(self) -> str:
        """Return the id. If there is none yet, make it, which takes a right that a proxy need not
        have.
        """
        if rows := await self._rows("known_cluster_id"):
            return str(rows[0][0])
        try:
            # The statement returns nothing if it waited while another process made the row: the
            # second one sees it.
            rows = await self._rows("cluster_id") or await self._rows("cluster_id")
        except StoreUnavailable as error:
            if getattr(error.__cause__, "sqlstate", None) == INSUFFICIENT_PRIVILEGE:
                raise StoreUnavailable(
                    "no node has been here yet: start `manage.py sharding_node`"
                ) from error
            raise
        return str(rows[0][0])

    async def register_types(
        self, configs: Sequence[TypeConfig]
    ) -> tuple[dict[str, int], dict[str, TypeConfig]]:
        ordered = sorted(configs, key=lambda config: config.name)
        await self._rows("register_types", type_parameters(ordered))
        known = {row[1]: (row[0], config_of(row[1:])) for row in await self._rows("types")}
        numbers = {each.name: known[each.name][0] for each in configs}
        theirs = {each.name: known[each.name][1] for each in configs}
        differing = {each.name for each in configs if theirs[each.name].as_declared(each) != each}
        return numbers, {name: config for name, config in theirs.items() if name in differing}

    async def type_ids(self) -> dict[str, int]:
        return {row[1]: row[0] for row in await self._rows("types")}

    async def types(self) -> list[TypeConfig]:
        return [config_of(row[1:]) for row in await self._rows("types")]

    async def types_in_force(self) -> list[TypeConfig]:
        return [config_of(row) for row in await self._rows("types_in_force")]

    async def join(self, member: Member, lock_keys: tuple[int, int]) -> int:
        rows = await self._rows(
            "join",
            {
                "incarnation": member.incarnation,
                "name": member.name,
                "host": member.host,
                "pid": member.pid,
                "state": member.state,
                "app_version": member.app_version,
                "candidate": member.candidate,
                "deaf": member.deaf,
                "key_1": lock_keys[0],
                "key_2": lock_keys[1],
                "wire": Json(list(member.wire)),
                "addresses": Json(list(member.addresses)),
                **_server(member.server),
                **_lists(member),
            },
        )
        return int(rows[0][0])

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
        changes = {
            "incarnation": incarnation,
            "state": state,
            "deaf": deaf,
            "unsettled": unsettled,
            **_server(server),
            **_lists(member),
        }
        return bool(await self._rows("update_member", changes))

    async def come_back(
        self, incarnation: Incarnation, server: Server | None
    ) -> tuple[Server, list[ShardRow]] | None:
        rows = await self._rows("come_back", {"incarnation": incarnation, **_server(server)})
        if not rows[0][3]:
            return None
        return Server(*rows[0][:3]), [ShardRow(*row[4:]) for row in rows if row[4] is not None]

    async def leave(self, incarnation: Incarnation) -> None:
        await self._rows("leave", {"incarnation": incarnation})

    async def members(self) -> tuple[Server, list[Member]]:
        rows = await self._rows("members")
        return Server(*rows[0][:3]), [_member(row[3:]) for row in rows if row[3] is not None]

    async def coordinator(self) -> CoordinatorRow:
        rows = await self._rows("coordinator")
        return CoordinatorRow(*rows[0]) if rows else CoordinatorRow(0, None)

    async def news(self, incarnation: Incarnation) -> News:
        rows = await self._rows("news", {"incarnation": incarnation})
        term, coordinator, asked, state, deaf, uses_messages, numbers = rows[0]
        return News(term or 0, coordinator, asked, state, bool(deaf), uses_messages, numbers)

    async def shards(self, types: Sequence[str] | None = None) -> list[ShardRow]:
        if types is None:
            return await self._shards("shards")
        return await self._shards("shards_of_types", {"types": list(types)})

    async def homes(self, type_name: str, shards: Sequence[ShardId]) -> list[ShardRow]:
        rows = await self._rows("homes", {"type": type_name, "shards": list(shards)})
        return [
            msgspec.structs.replace(ShardRow(*row[:6]), numbering=Numbering(*row[6:10]), journal=row[10])
            for row in rows
        ]

    async def home_counts(self) -> dict[Incarnation, int]:
        return dict(await self._rows("home_counts"))

    async def locate(self, type_name: str, locations: Mapping[ShardId, str]) -> bool:
        params = {"type": type_name, "shards": list(locations), "nodes": list(locations.values())}
        return bool((await self._rows("locate", params))[0][0])

    async def locations(
        self, type_name: str, known: int | None = None
    ) -> tuple[int, dict[ShardId, str]] | None:
        rows = await self._rows("locations", {"type": type_name, "known": known})
        if not rows:
            return None
        return rows[0][0], {shard: node for _, shard, node in rows if shard is not None}

    async def journal_place(self, name: str, place: str) -> tuple[str, str]:
        wanted = {"name": name, "place": place}
        # As in `cluster_id`.
        rows = await self._rows("journal_place", wanted) or await self._rows("journal_place", wanted)
        return rows[0][0], rows[0][1]

    async def use_journal(self, incarnation: Incarnation, name: str, place: str | None) -> str | None:
        wanted = {"incarnation": incarnation, "name": name, "place": place}
        rows = await self._rows("use_journal", wanted)
        if rows == [(None,)]:  # as in `cluster_id`, or the place is another journal's
            rows = await self._rows("use_journal", wanted)
        return rows[0][0] or "" if rows else None

    async def journals_in_use(self, *, but: Incarnation) -> frozenset[str]:
        return frozenset(name for (name,) in await self._rows("journals_in_use", {"but": but}))

    async def journals_used(self) -> frozenset[str]:
        return frozenset(name for (name,) in await self._rows("journals_used", {"types": None}))

    async def shard_journals(self, type_id: int) -> dict[ShardId, str]:
        if unread := await self.journals_to_read():
            raise StoreUnavailable(
                f"it is not read yet which shards lie in the journals {', '.join(sorted(unread))}",
                answered=True,
            )
        return dict(await self._rows("shard_journals", {"type_id": type_id}))

    async def journals_to_read(self) -> frozenset[str] | None:
        rows = await self._rows("journals_to_read")
        return None if rows[0][0] is None else frozenset(rows[0][0])

    async def restore_shards(self, term: Term, read: frozenset[str], found: Sequence[StoredShard]) -> bool:
        wanted = {
            "term": term,
            "read": sorted(read),
            "names": [each.type for each in found],
            "shards": [each.shard for each in found],
            "epochs": [each.epoch for each in found],
            "journals": [each.journal for each in found],
            "steps": [each.step for each in found],
            "numbers": [each.numbering.shards for each in found],
            "wanted": [each.numbering.wanted for each in found],
        }
        return bool((await self._rows("restore_shards", wanted))[0][0])

    async def introduce_workers(self, numbers: Mapping[str, int]) -> None:
        if numbers:
            names = sorted(numbers)
            params = {"names": names, "numbers": [numbers[each] for each in names]}
            await self._rows("introduce_workers", params)

    async def workers(self) -> list[NumberOfWorkers]:
        return [NumberOfWorkers(*row) for row in await self._rows("workers")]

    async def rescale(self, type_name: str, workers: int, by: str = "") -> NumberOfWorkers | None:
        rows = await self._rows("rescale", {"type": type_name, "workers": workers, "by": by})
        return NumberOfWorkers(*rows[0]) if rows else None

    async def put_in_force(self, term: Term, before: NumberOfWorkers) -> NumberOfWorkers | None:
        params = {"term": term, "type": before.type, "revision": before.revision}
        rows = await self._rows("put_in_force", params)
        return NumberOfWorkers(*rows[0]) if rows else None

    async def resize(self, type_name: str, known: int, wanted: int, by: str = "") -> bool:
        params = {"type": type_name, "known": known, "wanted": wanted, "by": by}
        return bool(await self._rows("resize", params))

    async def renumber(
        self,
        term: Term,
        type_name: str,
        before: Numbering,
        upto: int,
        least_epoch: Epoch,
        at_most: int = ROWS_AT_ONCE,
    ) -> tuple[Numbering, list[ShardRow]] | None:
        params = {
            "term": term, "type": type_name, "revision": before.revision, "upto": upto,
            "least_epoch": least_epoch, "at_most": at_most,
        }  # fmt: skip
        rows = await self._rows("renumber", params)
        if not rows:
            return None
        shards = [ShardRow(type_name, row[4], row[5], None, row[6]) for row in rows if row[4] is not None]
        return Numbering(*rows[0][:4]), shards

    async def refile(self, term: Term) -> None:
        await self._rows("refile")

    async def begin_move(self, type_id: int, shards: Sequence[ShardId], target: str) -> list[ShardId]:
        return await self._of_shards("move_begin", type_id, shards, target=target)

    async def close_shards(self, type_id: int, shards: Sequence[ShardId], seconds: float) -> list[ShardId]:
        return await self._of_shards("move_close", type_id, shards, seconds=seconds)

    async def renew_closings(self, type_id: int, shards: Sequence[ShardId], seconds: float) -> list[ShardId]:
        return await self._of_shards("move_renew", type_id, shards, seconds=seconds)

    async def open_shards(self, type_id: int, shards: Sequence[ShardId]) -> list[ShardId]:
        return await self._of_shards("move_open", type_id, shards)

    async def closed_shards(self) -> list[ClosedShard]:
        return [ClosedShard(*row) for row in await self._rows("move_closed")]

    async def open_lapsed(self, term: Term) -> list[ClosedShard]:
        return [ClosedShard(*row) for row in await self._rows("move_lapsed", {"term": term})]

    async def ask_to(
        self, request: LeaveRequest | None, incarnations: Sequence[Incarnation], by: str = ""
    ) -> list[Incarnation]:
        asked = {"request": request, "incarnations": list(incarnations), "by": by}
        rows = await self._rows("ask_to", asked)
        return sorted(row[0] for row in rows)

    async def decide(self, term: Term, changes: Sequence[HomeChange]) -> list[ShardRow]:
        rows = await self._rows(
            "decide",
            {
                "term": term,
                "types": [change.type for change in changes],
                "shards": [change.shard for change in changes],
                "expected": [change.expected_epoch for change in changes],
                "epochs": [change.epoch for change in changes],
                "homes": [change.home for change in changes],
                "steps": [change.step for change in changes],
                "journals": [journal_of(change.type, change.shard, self._journals) for change in changes],
            },
        )
        return [ShardRow(*row) for row in rows]

    async def bury(self, term: Term, incarnation: Incarnation) -> bool:
        return bool((await self._rows("bury", {"term": term, "incarnation": incarnation}))[0][0])

    async def record(self, decisions: Sequence[Decision]) -> None:
        if decisions:
            await self._rows(
                "record",
                {
                    "actions": [each.action for each in decisions],
                    "subjects": [each.subject for each in decisions],
                    "details": [each.detail for each in decisions],
                    "kept": TIMELINE_LINES,
                },
            )

    async def close(self) -> None:
        await self._line.close()

    async def _of_shards(
        self, query: str, type_id: int, shards: Sequence[ShardId], **params: Any
    ) -> list[ShardId]:
        rows = await self._rows(query, {"type_id": type_id, "shards": list(shards), **params})
        return [shard for (shard,) in rows]

    async def _shards(self, query: str, params: dict[str, Any] | None = None) -> list[ShardRow]:
        return [ShardRow(*row) for row in await self._rows(query, params)]

    async def rows(self, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement for another user of this connection (`leases`)."""
        return await self._rows(query, params)

    async def _rows(self, query: str, params: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        try:
            return await self._line.rows(query, params)
        except (*LOST, *UNSENDABLE) as error:
            if isinstance(error, psycopg.Error) and error.sqlstate == STALE_TERM:
                raise StaleTerm(error.diag.message_primary or "") from error
            if is_refused(error):
                raise StoreRefused(explain(error), answered=True) from error
            raise StoreUnavailable(explain(error), answered=has_failed(error)) from error


def _server(server: Server | None) -> dict[str, Any]:
    return {
        "server_started": None if server is None else server.started,
        "server_timeline": None if server is None else server.timeline,
        "server_system": None if server is None else server.system,
    }


def _lists(member: Member | None) -> dict[str, Any]:
    if member is None:
        return {"roles": None, "types": None, "backends": None}
    return {
        "roles": Json(list(member.roles)),
        "types": Json(list(member.types)),
        "backends": Json([{"pid": each.pid, "started": each.started} for each in member.backends]),
    }


def _member(row: tuple[Any, ...]) -> Member:
    (
        incarnation,
        name,
        host,
        pid,
        age,
        state,
        roles,
        app_version,
        candidate,
        types,
        deaf,
        started,
        timeline,
        system,
    ) = row[:14]
    return Member(
        incarnation=incarnation,
        name=name,
        host=host,
        pid=pid,
        age=age,
        state=state,
        roles=tuple(roles),
        app_version=app_version,
        candidate=candidate,
        types=tuple(types),
        deaf=deaf,
        server=None if started is None else Server(started, timeline, system or ""),
        backends=tuple(Backend(each["pid"], each["started"]) for each in row[14]),
        asked=row[15],
        locks=row[16],
        wire=(row[17][0], row[17][1], row[17][2]),
        addresses=tuple(row[18]),
    )


def config_of(row: Sequence[Any]) -> TypeConfig:
    """Return a row of `types` without its number. One of `types_in_force` tells no closings."""
    closings = row[11] if len(row) > 11 else 0
    return msgspec.structs.replace(TypeConfig(*row[:10]), declared=tuple(row[10]), closings=closings)


def type_parameters(configs: Sequence[TypeConfig]) -> dict[str, Any]:
    """Return configurations as statements take them: one array for each value."""
    return {
        "names": [each.name for each in configs],
        "kinds": [each.kind for each in configs],
        "numbers": [each.number_of_shards for each in configs],
        "extractors": [each.extractor for each in configs],
        "hashes": [each.hash_version for each in configs],
        "roles": [each.role for each in configs],
        "modes": [each.store_mode for each in configs],
    }
