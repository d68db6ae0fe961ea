"""A home takes a shard of a further journal after a resize, and the remembered ids take longer than
a take may.
"""

from __future__ import annotations

import pytest

from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.ports.journal import JournalUnavailable, Taken
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.numbering import Numbering
from tests.integration.adapters.postgres import test_moving
from tests.integration.adapters.postgres.test_moving import THERE, Both
from tests.support.given import until

databases, both = test_moving.databases, test_moving.both
IDS = [f"customer-{number}" for number in range(100)]
TYPE = "shop.Cart"
ITS_SESSIONS = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'sharding/me/resize'"
)


@pytest.mark.asyncio
async def test_the_journal_follows_it_beside_the_takes(both: Both) -> None:
    """Each hash takes 20 ms, all of them twice as long as a statement may."""
    both.run(
        THERE,
        "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
        " VALUES (1, %s, '', 1, '', '', '', '')",
        TYPE,
    )
    both.run(THERE, "INSERT INTO sharding_shard (type_id, shard, epoch, step) VALUES (1, 0, 7, 'stopped')")
    both.run(
        THERE,
        "INSERT INTO sharding_remembered (type_id, shard, epoch, entity) SELECT 1, 0, 7, id FROM unnest(%s::text[]) id",
        IDS,
    )
    ((source,),) = both.run(THERE, "SELECT pg_get_functiondef('sharding_hash_v1'::regproc)")
    slow = source.replace("BEGIN\n", "BEGIN\n    PERFORM pg_sleep(0.02);\n", 1).replace(
        "IMMUTABLE", "VOLATILE"
    )
    assert slow != source
    both.run(THERE, slow)
    journal = PostgresJournal(both.params[THERE], owner="me", answer_seconds=1.0)
    taken: list[Taken] = []
    refusals: list[str] = []

    async def is_taken() -> bool:
        try:
            taken.append(await journal.take(TYPE, 1, Numbering(2, 0, 0, 3), {1: 20}, "a-home"))
        except JournalUnavailable as error:
            refusals.append(str(error))
        return bool(taken)

    async def has_no_session() -> bool:
        return not both.run(THERE, ITS_SESSIONS)

    try:
        await until(is_taken)
    finally:
        await journal.close()
        both.run(THERE, source)
    assert taken[0].shards == {1}
    assert any("statement timeout" in each for each in refusals)
    assert f"it follows a resize of {TYPE}" in refusals
    there = dict(both.run(THERE, "SELECT entity, shard FROM sharding_remembered"))
    assert there == {each: shard_of(each, 2) for each in IDS}
    await until(has_no_session, 10)  # the server takes a moment to end one that was closed
