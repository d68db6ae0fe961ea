"""The removal of a type's journal is killed behind any piece: no state of a former life comes
back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.deletion import count_journal, remove_journal
from sharding_app.adapters.postgres.partitioning import change_layout
from sharding_app.embedded import Servers
from sharding_app.ports.journal import Erasure
from tests.integration.adapters.postgres.journals import insert, types
from tests.support.scratch import make_tables, scratch_database

UNCOVERED = b"""
    SELECT s.entity, s.seq FROM sharding_snapshot s
    WHERE s.type_id = 1 AND s.seq > coalesce(
        (SELECT max(e.seq) FROM sharding_event e WHERE e.type_id = 1 AND e.entity = s.entity), 0)
"""
LACKING = b"""
    SELECT e.entity FROM sharding_event e
    WHERE e.type_id = 1 GROUP BY e.entity HAVING min(e.seq) > coalesce(
        (SELECT max(s.seq) FROM sharding_snapshot s WHERE s.type_id = 1 AND s.entity = e.entity), 0) + 1
"""


class Killed(BaseException):
    pass


def killed_again_and_again(params: dict[str, Any], look: Callable[[], object], rows: int | None = 4) -> int:
    """Call the command until nothing is left, and look behind each piece. Return the pieces."""

    def dies(_: Erasure) -> None:
        raise Killed

    pieces = 0
    while count_journal(params, "T1") != Erasure():
        with pytest.raises(Killed):
            remove_journal(params, "T1", "me", dies, rows_at_once=rows)
        look()
        pieces += 1
    return pieces


@pytest.mark.parametrize("partitioned", [False, True])
def test_no_snapshot_is_beyond_the_last_event_nor_an_event_uncovered(
    servers: Servers, *, partitioned: bool
) -> None:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        types(params, 2)
        insert(params, 2, entities=10, events=10)
        with psycopg.connect(**params, autocommit=True) as admin:
            # The first events of some were deleted: a snapshot has them.
            admin.execute(b"UPDATE sharding_snapshot SET seq = 9")
            admin.execute(b"DELETE FROM sharding_event WHERE entity IN ('e2', 'e3') AND seq < 7")
            admin.execute(
                b"INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state)"
                b" SELECT type_id, entity, n, shard, epoch, state FROM sharding_snapshot, generate_series(7, 8) n"
            )
            if partitioned:
                list(change_layout(params, {}, "me"))

            def look() -> None:
                assert admin.execute(UNCOVERED).fetchall() == admin.execute(LACKING).fetchall() == []

            look()
            assert killed_again_and_again(params, look) > 5
        assert count_journal(params, "T1") == Erasure()
        assert count_journal(params, "T2").events == 88
