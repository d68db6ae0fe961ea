"""A standby that lacks the last commits is promoted: nothing is written that leaves a gap, and
terms only rise.
"""

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from sharding_app.adapters.postgres.appending_messages import append_within
from sharding_app.adapters.postgres.connection import Line
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.adapters.postgres.within import prepare_within
from sharding_app.embedded import OwnPostgres
from sharding_app.ports.journal import JournalUnavailable, Mark
from sharding_app.protocol.coordinator.terms import begins_era
from sharding_app.protocol.liveness.node_lease import after_return
from sharding_app.protocol.records import Backend, Lineage
from tests.integration.adapters.postgres.writers import connect, events, give_homes, value
from tests.support.given import event_row, member
from tests.support.postgres_pair import PostgresPair
from tests.support.scratch import make_tables

pytestmark = pytest.mark.asyncio


async def test_nothing_is_appended_to_a_timeline_that_was_not_read(
    own_postgres: OwnPostgres, tmp_path: Path
) -> None:
    params = dict(conninfo_to_dict(own_postgres.url))
    make_tables(params)
    async with await connect(params) as admin:
        await give_homes(admin, 1)
    store, journal = PostgresStore(params, owner="me"), PostgresJournal(params, owner="me", answer_seconds=3)
    session = PostgresLifelineSession(params, cluster_id="c", owner="me", ttl_seconds=60)
    await store.join(member("me"), (1, 2))
    await session.open()
    assert await session.elect("me") == 1
    lived = (await session.ping()).server.lineage
    journal.live_in(lived)
    await journal.append([event_row(1, "a", 1)])
    beside = tmp_path / "standby"
    beside.mkdir()
    with PostgresPair(own_postgres, beside) as pair:
        pair.attach(synchronous=False)
        pair.cut()
        await journal.append([event_row(1, "a", 2)])
        pair.promote()
        async with await connect(params) as admin:
            assert [seq for _, seq, _ in await events(admin)] == [1], "the acknowledged tail is lost"
        for _ in range(3):
            with pytest.raises(JournalUnavailable):
                await journal.append([event_row(1, "a", 3)])
            with pytest.raises(JournalUnavailable):
                await journal.settle([event_row(1, "a", 3)])
        await session.open()
        server = (await session.ping()).server
        assert after_return(lived, server.lineage) == "read_again"
        term = await session.elect("me")
        assert term is not None
        assert begins_era(term)
        await session.resign()
        assert await session.elect("me") == term + 1
        await store.close()
        found = await store.come_back("me", server)
        assert found == (server, [])
        journal.live_in(server.lineage)
        assert not await journal.settle([event_row(1, "a", 3)])
        await journal.append([event_row(1, "a", 2)])
        async with await connect(params) as admin:
            assert [seq for _, seq, _ in await events(admin)] == [1, 2]
        await store.close()
        await journal.close()
        await session.close()


async def test_what_a_former_server_answers_is_not_believed_once_the_node_lives_in_another_lineage(
    params: dict[str, Any],
) -> None:
    """It may still be there when its standby takes over, and answer what was asked before: the
    present server lacks what it says.
    """
    journal = PostgresJournal(params, owner="me")
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        await journal.open()
        lived = journal._appends[0].lineage
        assert lived is not None
        journal.live_in(lived)
        asked: dict[str, asyncio.Task[Any]] = {}
        for name, ask in (
            ("read", lambda: journal.read(1, ["a"])),
            ("is_home", lambda: journal.is_home(1, 0, 1, "home")),
            ("remember", lambda: journal.remember([Mark(1, 0, 1, "a", True)])),
            ("append", lambda: journal.append([event_row(1, "a", 1)])),
        ):
            journal.live_in(lived)
            await journal.open()
            asked[name] = asyncio.ensure_future(ask())
            await asyncio.sleep(0)
            assert not asked[name].done()
            journal.live_in(Lineage(lived.system, lived.timeline + 1))
            with pytest.raises(JournalUnavailable, match="gone on elsewhere") as lost:
                await asked[name]
            assert not lost.value.answered
        journal.live_in(lived)
        assert await journal.settle([event_row(1, "a", 1)]), "the journal says what became of it"
    await journal.close()


async def test_a_line_that_finds_the_former_primary_asks_the_other_server_next(
    own_postgres: OwnPostgres, tmp_path: Path
) -> None:
    """It was started by mistake, where connections find it first, and takes writes."""
    first = dict(conninfo_to_dict(own_postgres.url))
    make_tables(first)
    beside = tmp_path / "standby"
    beside.mkdir()
    with PostgresPair(own_postgres, beside) as pair:
        pair.attach(synchronous=False)
        both = {"host": f"{first['host']},{first['host']}", "port": f"{first['port']},{pair.standby.port}"}
        line = Line({**first, **both}, purpose="test")
        pair.promote_in_place()
        await line.open()
        lived = line.lineage
        assert lived is not None
        await line.close()
        pair.standby.start()
        line.live_in(lived)
        with pytest.raises(psycopg.OperationalError, match="what is in memory on"):
            await line.rows("coordinator")
        await line.rows("coordinator")
        assert line.lineage == lived
        line.live_in(Lineage(lived.system, lived.timeline - 1))
        for _ in range(2):
            with pytest.raises(psycopg.OperationalError, match="what is in memory on"):
                await line.rows("coordinator")
            assert line.lineage == lived, "one that is ahead is asked again"
        await line.close()


async def test_rows_of_a_user_and_their_event_are_kept_or_lost_together(
    own_postgres: OwnPostgres, tmp_path: Path
) -> None:
    """As the virtual server has it: a promotion takes back both or neither, and settling says
    which.
    """
    params = dict(conninfo_to_dict(own_postgres.url))
    make_tables(params)
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        await admin.execute("CREATE TABLE booked (token text)")

    def book(seq: int) -> Backend:
        with psycopg.connect(own_postgres.url) as connection:
            backend = prepare_within(connection, "also", 1000)
            connection.execute("INSERT INTO booked VALUES (%s)", [str(seq)])
            append_within(connection.cursor(), [event_row(1, "a", seq)])
        return backend

    journal = PostgresJournal(params, owner="me", answer_seconds=3)
    beside = tmp_path / "standby"
    beside.mkdir()
    with PostgresPair(own_postgres, beside) as pair:
        pair.attach()
        kept = book(1)
        pair.require(synchronous=False)
        pair.cut()
        lost = book(2)
        pair.promote()
        assert await journal.settle_of(kept, [event_row(1, "a", 1)])
        assert not await journal.settle_of(lost, [event_row(1, "a", 2)])
        async with await connect(params) as admin:
            assert await events(admin) == [("a", 1, 1)]
            assert await value(admin, "SELECT string_agg(token, ',') FROM booked") == "1"
        await journal.close()
