"""What one entity with a long history costs the statements that are about it: bounded, whatever its
length.
"""

from typing import Any

import pytest

from sharding_app.adapters.postgres import journal as journal_module
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.ports.journal import Bounds, Snapshot
from tests.integration.adapters.postgres.plans import rows_read
from tests.integration.adapters.postgres.writers import connect, give_homes, value
from tests.support.given import event_row

pytestmark = pytest.mark.asyncio

LONG = 3000
FILL = """
INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, at)
SELECT 1, 'long', number, 0, 1, 'E', 1, '{}', now() - interval '1 day' FROM generate_series(1, %s) AS number
"""


async def filled(params: dict[str, Any], events: int = LONG) -> None:
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        await admin.execute(FILL, [events])
        await admin.execute("ANALYZE sharding_event")


async def left(params: dict[str, Any]) -> int:
    async with await connect(params) as admin:
        return int(await value(admin, "SELECT count(*) FROM sharding_event"))


async def test_a_snapshot_alone_reads_no_event(
    params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old snapshots go; without `delete_events` the events are not even looked at."""
    await filled(params)
    journal = PostgresJournal(params)
    await journal.save_snapshots([Snapshot(1, "long", seq, 0, 1, b"{}") for seq in (100, 200, 300)])
    asked = []
    rows = journal._beside_rows

    async def noted(query: str, values: Any) -> Any:
        asked.append(query)
        return await rows(query, values)

    monkeypatch.setattr(journal, "_beside_rows", noted)
    assert not await journal.trim(1, "long", 0, 1, 60.0)
    assert asked == ["trim_snapshots"]
    assert await left(params) == LONG
    assert rows_read(params, "trim_snapshots", {"type_id": 1, "entity": "long", "keep": 1}) == 0
    await journal.close()


async def test_old_events_go_in_pieces(params: dict[str, Any]) -> None:
    await filled(params)
    journal = PostgresJournal(params)
    await journal.save_snapshots([Snapshot(1, "long", LONG, 0, 1, b"{}")])
    values = {"type_id": 1, "entity": "long", "before": LONG, "window": 60.0, "limit": 100, "keep": 1}
    assert rows_read(params, "trim_events", values) <= 3 * 100 + 10
    assert await journal.trim(1, "long", LONG, 1, 60.0, limit=1000)
    assert await left(params) == LONG - 1000
    while await journal.trim(1, "long", LONG, 1, 60.0, limit=1000):
        pass
    assert await left(params) == 1
    assert [event.seq for event in (await journal.read_from(1, "long", 0)).events] == [LONG]
    await journal.close()


async def test_while_the_first_event_is_recent_no_other_is_read(params: dict[str, Any]) -> None:
    await filled(params)
    async with await connect(params) as admin:
        await admin.execute("UPDATE sharding_event SET at = now()")
    journal = PostgresJournal(params)
    await journal.save_snapshots([Snapshot(1, "long", LONG, 0, 1, b"{}")])
    values = {"type_id": 1, "entity": "long", "before": LONG, "window": 60.0, "limit": 1000, "keep": 1}
    assert rows_read(params, "trim_events", values) <= 2
    assert not await journal.trim(1, "long", LONG, 1, 60.0)
    assert await left(params) == LONG
    await journal.close()


async def test_the_way_along_snapshots_reads_two_events_of_an_entity(params: dict[str, Any]) -> None:
    await filled(params)
    journal = PostgresJournal(params)
    await journal.save_snapshots([Snapshot(1, f"e-{seq:03}", 1, 0, 1, b"{}") for seq in range(300)])
    await journal.save_snapshots([Snapshot(1, "long", seq, 0, 1, b"{}") for seq in range(LONG - 9, LONG + 1)])
    values = {"type_id": 1, "window": 60.0, "keep": 1, "limit": 10, "first": "", "last": "\U0010ffff"}
    assert rows_read(params, "trimmable", {**values, "after": "e-290"}) <= 2
    assert rows_read(params, "trimmable", {**values, "after": ""}, "sharding_snapshot") <= 10
    assert await journal.trimmable(1, "e-290", 60.0, 1, 10) == (["long"], "long")
    assert await journal.trimmable(1, "e-299", 60.0, 1, 11) == (["long"], "")
    await journal.close()


LOOK_UP = {"types": [1], "entities": ["long"], "ages": [3_600_000]}


@pytest.mark.parametrize("analyzed", [True, False])
async def test_a_look_up_of_a_callers_id_reads_no_other_event(params: dict[str, Any], analyzed: bool) -> None:
    """However many of them are recent, and whatever the planner believes of their number."""
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        await admin.execute(
            "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, command_id)"
            " SELECT 1, 'e' || number, 1, 0, 1, 'E', 1, '{}', 'c' || number FROM generate_series(1, 2000) AS number"
        )
        if analyzed:
            await admin.execute("ANALYZE sharding_event")
        await admin.execute(
            "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, command_id)"
            " SELECT 1, 'long', number, 0, 1, 'E', 1, '{}', 'c' || number FROM generate_series(1, 3000) AS number"
        )
    for command_id in ("never", "c7"):
        assert rows_read(params, "outcome", {**LOOK_UP, "command_ids": [command_id]}) <= 2
    journal = PostgresJournal(params)
    found = await journal.outcome(1, "long", "c7", 3_600_000)
    assert found is not None
    assert found.seq == 7
    other = await journal.outcome(1, "e7", "c7", 3_600_000)
    assert other is not None
    assert other.seq == 1
    await journal.close()


async def test_a_look_up_of_an_id_of_ours_reads_what_is_younger_than_the_command(
    params: dict[str, Any],
) -> None:
    await filled(params)
    async with await connect(params) as admin:
        await admin.execute(
            "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, command_id)"
            " SELECT 1, 'long', %s + number, 0, 1, 'E', 1, '{}', '?n-1:' || number FROM generate_series(1, 5) AS number",
            [LONG],
        )
    values = {**LOOK_UP, "command_ids": ["?n-1:3"], "ages": [60_000]}
    assert rows_read(params, "outcome_of_ours", values) <= 20
    journal = PostgresJournal(params)
    found = await journal.outcome(1, "long", "?n-1:3", 60_000)
    assert found is not None
    assert found.seq == LONG + 3
    await journal.close()


async def test_the_index_leaves_ids_of_ours_out(params: dict[str, Any]) -> None:
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        await admin.execute(
            "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, command_id)"
            " SELECT 1, 'long', number, 0, 1, 'E', 1, '{}', '?n-1:' || number FROM generate_series(1, 20000) AS number"
        )
        assert await value(admin, "SELECT pg_relation_size('sharding_event_command')") <= 16384


@pytest.mark.parametrize("query", ["read", "read_large"])
async def test_a_recovery_reads_the_events_after_the_snapshot_and_a_page_of_them(
    params: dict[str, Any], query: str
) -> None:
    await filled(params)
    wanted = {"type_id": 1, "entities": ["long", "none"], "rows": 10_000, "bytes": 1 << 23, "small": 800}
    wanted |= {"events": 100}
    assert rows_read(params, query, wanted, recovers=True) == 100
    journal = PostgresJournal(params)
    await journal.save_snapshots([Snapshot(1, "long", seq, 0, 1, b"{}") for seq in (LONG - 90, LONG - 50)])
    assert rows_read(params, query, wanted, recovers=True) == 50
    assert rows_read(params, query, wanted, "sharding_snapshot", recovers=True) == 1
    await journal.close()


LARGE = [b'"%s"' % (b"x" * 50_000), b'"%s"' % b"".join(b"%x" % (n * 7919) for n in range(200))]
"""One that is stored in fewer bytes than are small, since it is compressed, and one that is not."""


@pytest.mark.parametrize("large", LARGE)
async def test_sizes_are_added_up_while_a_type_has_large_events(
    params: dict[str, Any], monkeypatch: pytest.MonkeyPatch, large: bytes
) -> None:
    """Small is what fits in as often as rows may come."""
    async with await connect(params) as admin:
        await give_homes(admin, 1)
    journal = PostgresJournal(params)
    await journal.append([event_row(1, "small", 1), event_row(1, "large", 1, payload=large)])
    await journal.save_snapshots([Snapshot(1, "also", 1, 0, 1, large)])
    asked: list[str] = []
    histories = journal_module._histories

    async def noted(connection: Any, query: str, values: Any) -> Any:
        asked.append(query)
        return await histories(connection, query, values)

    monkeypatch.setattr(journal_module, "_histories", noted)
    bounds = Bounds(rows=100, bytes=80_000)

    async def read(*entities: str) -> list[str]:
        asked.clear()
        found = await journal.read(1, entities, bounds)
        assert list(found) == list(entities)
        for entity, history in found.items():
            contents = [event.payload for event in history.events]
            contents += [history.snapshot.state] if history.snapshot is not None else []
            assert [content == large for content in contents] == [entity != "small"]
            assert not history.more
        return list(asked)

    assert await read("small") == ["read"]
    assert await read("small", "large") == ["read", "read_large"]
    assert await read("also") == ["read_large"]
    assert await read("small") == ["read_large"]
    assert await read("small") == ["read"]
    assert await read("small", "also") == ["read", "read_large"]
    await journal.close()
