"""Shards in two databases of a real server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import psycopg
import pytest
import pytest_asyncio

from sharding_app.adapters.postgres import journal as journal_module
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.embedded import Servers
from sharding_app.errors import ShardingError
from sharding_app.ports.journal import EventRow, JournalOfAnother, ShardsFenced
from sharding_app.protocol.ids import Incarnation, shard_of
from sharding_app.protocol.numbering import Numbering
from sharding_app.runtime.base.config import NodeConfig, NodePorts
from tests.integration.lives.on_postgres import Params, PostgresCluster, RealLoop
from tests.support.given import until
from tests.support.scratch import make_tables, scratch_database
from tests.support.slack import SLACK
from tests.unit.runtime.two_journals import SECOND, SHARDS, WEIGHTS, Purse, some

pytestmark = pytest.mark.asyncio

HERE, THERE = some("", 5), some(SECOND, 5)
CONFIG = NodeConfig(number_of_shards=SHARDS, ask_timeout_seconds=20.0)
STORED = "SELECT entity, count(*) FROM sharding_event GROUP BY entity"


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"real": RealLoop}


class TwoDatabases(PostgresCluster):
    entities: ClassVar[Sequence[type[Any]]] = (Purse,)

    def __init__(self, params: Params, second: Params, *, aliases: int = 1, **options: Any) -> None:
        self.second = second
        self.names = (SECOND, "alias")[:aliases]
        super().__init__(params, self.entities, **options)

    def _node_ports(self, incarnation: Incarnation) -> NodePorts:
        ports = super()._node_ports(incarnation)
        ports.store = PostgresStore(self.params, owner=incarnation, journals=WEIGHTS)
        ports.journals = {name: PostgresJournal(self.second, owner=incarnation) for name in self.names}
        return ports


@pytest.fixture
def databases(servers: Servers) -> Iterator[tuple[Params, Params]]:
    with scratch_database(servers.database_url) as first, scratch_database(servers.database_url) as second:
        make_tables(first)
        make_tables(second)
        yield first, second


@pytest_asyncio.fixture
async def cluster(databases: tuple[Params, Params]) -> AsyncIterator[TwoDatabases]:
    async with TwoDatabases(*databases, nodes=2, config=CONFIG) as made:
        with made.in_use():
            yield made


def rows(params: Params, query: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(**params, autocommit=True) as connection:
        return connection.execute(query.encode(), values).fetchall()


def stored(params: Params) -> Counter[str]:
    return Counter(dict(rows(params, STORED)))


async def pay_all() -> list[int]:
    return await asyncio.gather(*(Purse.ref(each).pay(1) for each in (*HERE, *THERE)))


async def pay_all_but(away: set[str]) -> None:
    await asyncio.gather(*(Purse.ref(each).pay(1) for each in (*HERE, *THERE) if each not in away))


async def test_events_lie_in_the_database_of_their_shard_and_move_with_it(cluster: TwoDatabases) -> None:
    await pay_all()
    await cluster.add_node("late")
    await cluster.stop_node("node1")
    assert set(await pay_all()) == {2}
    await cluster.kill_node("node2")
    assert set(await pay_all()) == {3}
    assert stored(cluster.params) == Counter(dict.fromkeys(HERE, 3))
    assert stored(cluster.second) == Counter(dict.fromkeys(THERE, 3))
    assert [each.entity_id async for each in Purse.refs()] == sorted([*HERE, *THERE])


async def test_a_former_home_writes_nothing_once_the_next_one_has_begun(cluster: TwoDatabases) -> None:
    await pay_all()
    entity, wanted = THERE[0], "SELECT type_id, epoch FROM sharding_shard WHERE shard = %s"
    shard = shard_of(entity, SHARDS)
    ((type_id, epoch),) = rows(cluster.second, wanted, shard)
    former = PostgresJournal(cluster.second, owner="n-frozen")
    await former.connect()
    await cluster.stop_node("node1")
    await cluster.stop_node("node2")
    await cluster.add_node("next")
    await pay_all()
    ((_, later),) = rows(cluster.second, wanted, shard)
    assert later > epoch
    with pytest.raises(ShardsFenced):
        await former.append([EventRow(type_id, entity, 3, shard, epoch, "Paid", 1, b"{}", None, None, None)])
    taken = await former.take("journals.Purse", type_id, Numbering(SHARDS), {shard: epoch}, "n-frozen")
    assert taken.shards == frozenset()
    await former.close()


async def test_a_database_that_is_away_stops_its_own_shards_only(cluster: TwoDatabases) -> None:
    await pay_all()
    name = cluster.second["dbname"]
    away = f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    with psycopg.connect(**cluster.params, autocommit=True) as admin:
        admin.execute(away.encode())
        admin.execute(ended.encode(), [name])
        waiting = [asyncio.ensure_future(Purse.ref(each).pay(1)) for each in THERE]
        for _ in range(5):
            await asyncio.gather(*(Purse.ref(each).pay(1) for each in HERE))
        fresh = some("", 40)[-1]
        assert await Purse.ref(fresh).pay(1) == 1
        assert not any(each.done() for each in waiting)
        admin.execute(away.replace("false", "true").encode())
    assert set(await asyncio.gather(*waiting)) == {2}


async def test_a_database_of_another_cluster_is_refused(cluster: TwoDatabases) -> None:
    await pay_all()
    stranger = PostgresJournal(cluster.second, owner="n-stranger")
    owned = await stranger.own(cluster.server.cluster_id)
    known = rows(cluster.params, "SELECT place FROM sharding_journal WHERE name = %s", SECOND)
    assert known == [(owned.place,)]
    with pytest.raises(JournalOfAnother):
        await stranger.own("another")
    ours = PostgresJournal(cluster.params, owner="n-stranger")
    with pytest.raises(JournalOfAnother):
        await ours.own(cluster.server.cluster_id)
    await stranger.close()
    await ours.close()


async def test_nothing_acknowledged_is_lost_while_nodes_come_and_go(cluster: TwoDatabases) -> None:
    paid: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    ends = asyncio.Event()

    async def caller(entity: str) -> None:
        while not ends.is_set():
            asked[entity] += 1
            try:
                await Purse.ref(entity).pay(1)
            except ShardingError:
                continue
            paid[entity] += 1

    callers = [asyncio.ensure_future(caller(each)) for each in (*HERE, *THERE)]
    await cluster.add_node("third")
    await asyncio.sleep(1)
    await cluster.kill_node("node1")
    await asyncio.sleep(1)
    await cluster.add_node("fourth")
    await cluster.stop_node("node2")
    await asyncio.sleep(1)
    ends.set()
    await asyncio.gather(*callers)
    for entity in (*HERE, *THERE):
        assert paid[entity] <= await Purse.ref(entity).sum() <= asked[entity]
    assert stored(cluster.params).keys() == set(HERE)
    assert stored(cluster.second).keys() == set(THERE)


async def test_nodes_that_begin_at_once_all_make_the_database_their_journal(
    databases: tuple[Params, Params], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them makes the row, and the others wait for it."""
    monkeypatch.setattr(journal_module, "WATCH_SECONDS", 10.0 * SLACK)
    first, second = databases
    journals = [PostgresJournal(second, owner=f"n-{number}") for number in range(8)]
    stores = [PostgresStore(first, owner=f"n-{number}", lock_timeout_seconds=60) for number in range(8)]
    for _ in range(10):
        rows(second, "DELETE FROM sharding_cluster RETURNING 1")
        rows(first, "DELETE FROM sharding_journal RETURNING 1")
        owned = await asyncio.gather(*(each.own("ours") for each in journals))
        assert len(set(owned)) == 1
        places = [f"place {number}" for number in range(8)]
        known = await asyncio.gather(
            *(store.journal_place(SECOND, place) for store, place in zip(stores, places, strict=True))
        )
        assert len(set(known)) == 1
        others = await asyncio.gather(
            *(each.journal_place(f"b{n}", known[0][1]) for n, each in enumerate(stores)),
        )
        assert set(others) == set(known), "a database is one journal, whatever its aliases"
    await asyncio.gather(*(each.close() for each in journals), *(each.close() for each in stores))


@pytest.mark.parametrize("aliases", [1, 2])
async def test_two_aliases_of_one_database_are_not_two_journals(
    databases: tuple[Params, Params], aliases: int
) -> None:
    """Projections would handle each event of it once for each of them."""
    async with TwoDatabases(*databases, nodes=1, config=CONFIG, aliases=aliases) as made:
        parts = made.nodes["node1"].hosting.parts
        watched = {part.name: part for part in parts if part.name}
        assert len(watched) == aliases

        async def is_one() -> bool:
            told = [part.trouble for part in watched.values()]
            refused = ["leads to the database of the journal" in each for each in told]
            return told.count("") == 1 and refused.count(True) == aliases - 1

        await until(is_one)


async def test_a_closed_shard_is_served_by_its_row_of_then_once_it_is_opened(cluster: TwoDatabases) -> None:
    """Its last rows move while it has no home: here by hand. A call waits meanwhile."""
    await pay_all()
    entity = HERE[0]
    shard = shard_of(entity, SHARDS)
    mover = PostgresStore(cluster.params)
    ((number, name),) = rows(
        cluster.params, "SELECT id, name FROM sharding_type WHERE name = 'journals.Purse'"
    )
    assert await mover.begin_move(number, [shard], SECOND) == [shard]
    assert await mover.close_shards(number, [shard], 600) == [shard]

    async def is_homeless() -> bool:
        (row,) = await mover.homes(name, [shard])
        return row.home is None

    await until(is_homeless)
    call = asyncio.create_task(Purse.ref(entity).pay(1))
    await pay_all_but({each for each in HERE if shard_of(each, SHARDS) == shard})
    fence = "UPDATE sharding_shard SET epoch = epoch + 1, journal = %s WHERE shard = %s AND home IS NULL RETURNING epoch"
    ((epoch,),) = rows(cluster.params, fence, SECOND, shard)
    rows(
        cluster.second,
        "INSERT INTO sharding_shard (type_id, shard, epoch, step) VALUES (%s, %s, %s, 'stopped') RETURNING 1",
        number, shard, epoch,
    )  # fmt: skip
    for event in rows(
        cluster.params,
        "SELECT entity, seq, name, version, payload::text FROM sharding_event WHERE shard = %s",
        shard,
    ):
        rows(
            cluster.second,
            "INSERT INTO sharding_event (type_id, shard, epoch, entity, seq, name, version, payload)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s) RETURNING 1",
            number, shard, epoch, *event,
        )  # fmt: skip
    assert not call.done()
    assert await mover.open_shards(number, [shard]) == [shard]
    assert await call == 2
    assert stored(cluster.params)[entity] == 1
    assert stored(cluster.second)[entity] == 2
    await mover.close()
