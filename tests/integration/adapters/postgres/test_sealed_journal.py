"""Personal data in the journal while several nodes make keys, while a person is erased, and after a
restore.
"""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sharding_app.adapters.personal.journal import SealedJournal
from sharding_app.adapters.personal.sealing import answered, index_key
from sharding_app.adapters.personal.vault import Vault, mark_of, new_row
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.adapters.postgres.subjects import Subjects
from sharding_app.ports.journal import Erasure, JournalUnavailable, RowRefused, Snapshot, SubjectGone
from sharding_app.protocol import personal
from sharding_app.protocol.personal import ERASED_TOKEN, Plain
from sharding_app.protocol.records import HomeChange
from tests.integration.adapters.postgres.writers import connect
from tests.support.given import CART, event_row, member
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio

VAULT = Vault([b"a secret of the settings"])
ANN = personal.in_json(personal.plain_token(Plain("ann", b"\xa5Smith")))
ERASED = personal.in_json(ERASED_TOKEN)


async def journals(params: dict[str, Any], count: int) -> tuple[int, list[Any]]:
    """Journals of nodes, and the number of a type that they write. They wait for each other: what
    is looked at here is what they store.
    """
    store = PostgresStore(params)
    numbers, _ = await store.register_types([CART])
    await store.join(member("a"), (11, 12))
    async with await connect(params) as admin:
        await admin.execute("INSERT INTO sharding_coordinator (term, incarnation) VALUES (1, 'a')")
    await store.decide(1, [HomeChange(CART.name, 0, 0, 1, "a", "home")])
    await store.close()
    return numbers[CART.name], [
        SealedJournal(cast(Any, PostgresJournal(params, lock_timeout_seconds=10)), VAULT)
        for _ in range(count)
    ]


async def mark_there(params: dict[str, Any], number: int, entity: str) -> str:
    """Return the mark of what an entity has stored now."""
    async with await connect(params) as admin:
        rows = await admin.execute(
            QUERIES["archive_marks"], {"type_id": number, "entities": [entity], "shards": [0]}
        )
        ((_, mark),) = await rows.fetchall()
    return str(mark)


async def close(found: Sequence[Any]) -> None:
    for journal in found:
        await journal.close()


def erase(params: dict[str, Any], subject: str) -> None:
    with Subjects(params) as subjects:
        index = answered(index_key(VAULT), lambda ask: subjects.rows(ask.query, ask.params))
        subjects.rows("subject_erase", {"row": new_row(), "mark": mark_of(index, subject)})


async def payloads(journal: Any, number: int, *entities: str) -> set[bytes]:
    found = await journal.read(number, entities)
    return {event.payload for history in found.values() for event in history.events}


async def test_nodes_that_make_a_key_at_once_end_with_one(params: dict[str, Any]) -> None:
    number, nodes = await journals(params, 6)
    await asyncio.gather(*(
        node.append([event_row(number, f"lot-{place}", 1, payload=b'{"name": %s}' % ANN)])
        for place, node in enumerate(nodes)
    ))  # fmt: skip
    async with await connect(params) as admin:
        rows = await (await admin.execute("SELECT count(*) FROM sharding_subject")).fetchone()
        stored = await (
            await admin.execute("SELECT string_agg(payload::text, '') FROM sharding_event")
        ).fetchone()
    assert rows == (2,), "the person's key, and the key of the marks"
    assert stored is not None
    assert "Smith" not in str(stored[0])
    for node in nodes:
        assert await payloads(node, number, *(f"lot-{place}" for place in range(6))) == {
            b'{"name": %s}' % ANN
        }
    await close(nodes)


async def test_a_commit_that_was_not_answered_is_found(params: dict[str, Any]) -> None:
    """A value that is sealed again is another one. Rows beside it are stored as they are."""
    number, (journal,) = await journals(params, 1)
    clear, named = b'{"sku":  "k\xc3\xa4se \\u00e4", "n": 1.0}', b'{"name": %s}' % ANN
    for entity, payloads_of in (("lot-1", (clear, named)), ("lot-2", (named, clear))):
        rows = [event_row(number, entity, seq, payload=each) for seq, each in enumerate(payloads_of, 1)]
        assert not await journal.settle(rows)
        await journal.append(rows)
        assert await journal.settle(rows)
        assert not await journal.settle([rows[0]._replace(command_id="another")])
    await close([journal])


async def test_appends_beside_an_erasure_are_stored_before_it_or_refused(params: dict[str, Any]) -> None:
    number, nodes = await journals(params, 3)
    stored: list[str] = []
    refused: list[int | None] = []
    some, over = asyncio.Event(), asyncio.Event()

    async def write(place: int) -> None:
        seq = 0
        while True:
            began_after = over.is_set()
            seq += 1
            try:
                row = event_row(number, f"lot-{place}", seq, payload=b'{"name": %s}' % ANN)
                await nodes[place].append([row, event_row(number, f"other-{place}", seq)])
            except SubjectGone as error:
                refused.append(error.index)
                return
            assert not began_after, "no write that begins after the erasure is acknowledged"
            stored.append(f"lot-{place}")
            if len(stored) == 10:
                some.set()

    writers = [asyncio.create_task(write(place)) for place in range(3)]
    await asyncio.wait_for(some.wait(), 30 * SLACK)
    await asyncio.to_thread(erase, params, "ann")
    over.set()
    await asyncio.gather(*writers)
    assert refused == [0, 0, 0], "the row with the personal data"
    assert await payloads(nodes[0], number, "lot-0", "lot-1", "lot-2") == {b'{"name": %s}' % ERASED}
    assert len((await nodes[0].read_from(number, "lot-0", 0)).events) == stored.count("lot-0")
    await close(nodes)


@pytest.mark.parametrize("way", ["erase", "archive"])
async def test_no_snapshot_comes_behind_the_end_of_its_entity(params: dict[str, Any], way: str) -> None:
    """It is sealed when the entity's end is called for."""
    number, (journal,) = await journals(params, 1)
    await journal.append([event_row(number, "lot", 1)])
    mark = await mark_there(params, number, "lot")
    snapshot = Snapshot(number, "lot", 1, 0, 1, b'{"name": %s}' % ANN)
    saving = asyncio.create_task(journal.save_snapshots([snapshot]))
    await asyncio.sleep(0)
    if way == "erase":
        await journal.erase(number, 0, 1, "lot", at_most=10, before=Erasure(), by="an operator")
    else:
        await journal.archive(number, 0, 1, "lot", mark=mark)
    await saving
    events = (await journal.read_from(number, "lot", 0)).events
    stored = (await journal.read(number, ["lot"]))["lot"].snapshot
    assert bool(events) == bool(stored), "all of it is there, or nothing"
    assert way == "archive" or not events
    await close([journal])


@pytest.mark.parametrize("step", range(6))
async def test_nothing_is_stored_in_a_lineage_that_came_while_it_was_sealed(
    params: dict[str, Any], step: int
) -> None:
    """What was to be stored may stand behind events that this lineage has lost."""
    number, (journal,) = await journals(params, 1)
    ask, asked = journal.subject_rows, []
    await journal.open()
    present = journal._beside.lineage

    async def subject_rows(query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        answer: list[tuple[Any, ...]] = await ask(query, params)
        asked.append(query)
        if len(asked) == step + 1:
            journal.live_in(present)
        return answer

    journal._subjects = SimpleNamespace(subject_rows=subject_rows)
    row = event_row(number, "lot", 1, payload=b'{"name": %s}' % ANN)
    with pytest.raises(JournalUnavailable, match="elsewhere"):
        await journal.append([row])
    assert len(asked) > step
    assert not await journal.settle([row])
    await journal.append([row])
    assert await payloads(journal, number, "lot") == {b'{"name": %s}' % ANN}
    await close([journal])


@pytest.mark.parametrize("table_has", ["no key", "only the key of the marks"])
async def test_nothing_is_stored_in_clear_where_the_database_keeps_no_key(
    params: dict[str, Any], table_has: str
) -> None:
    number, (journal,) = await journals(params, 1)
    condition = "WHEN (NEW.mark <> '')" if table_has != "no key" else ""
    async with await connect(params) as admin:
        await admin.execute(
            "CREATE FUNCTION left_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
            "CREATE TRIGGER left_out BEFORE INSERT ON sharding_subject"
            f" FOR EACH ROW {condition} EXECUTE FUNCTION left_out()"
        )
    try:
        with pytest.raises(RowRefused, match="sharding_subject"):
            await journal.append([event_row(number, "lot", 1, payload=b'{"name": %s}' % ANN)])
        assert await payloads(journal, number, "lot") == set()
    finally:
        async with await connect(params) as admin:
            await admin.execute("DROP FUNCTION left_out CASCADE")
        await close([journal])


async def test_a_restored_backup_has_the_person_until_she_is_erased_again(params: dict[str, Any]) -> None:
    number, (journal,) = await journals(params, 1)
    await journal.append([event_row(number, "lot", 1, payload=ANN)])
    async with await connect(params) as admin:
        await admin.execute("CREATE TEMP TABLE backup AS SELECT * FROM sharding_subject")
        await asyncio.to_thread(erase, params, "ann")
        assert await payloads(journal, number, "lot") == {ERASED}
        await admin.execute("TRUNCATE sharding_subject")
        await admin.execute("INSERT INTO sharding_subject SELECT * FROM backup")
    assert await payloads(journal, number, "lot") == {ANN}
    await asyncio.to_thread(erase, params, "ann")
    assert await payloads(journal, number, "lot") == {ERASED}
    with pytest.raises(SubjectGone):
        await journal.append([event_row(number, "lot", 2, payload=ANN)])
    await close([journal])
