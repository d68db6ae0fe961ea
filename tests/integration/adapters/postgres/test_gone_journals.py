"""A journal whose server is lost for good while shards move to it, or have left copies in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from sharding_app.adapters.postgres import moving
from sharding_app.adapters.postgres.further_journals import JournalDown
from sharding_app.adapters.postgres.left_copies import delete_left_copies
from sharding_app.adapters.postgres.moving import cancel, move_shards, settle_moves
from sharding_app.embedded import OwnPostgres, Servers
from sharding_app.ports.journal import Erasure
from sharding_app.protocol.moving import CannotMove
from tests.integration.adapters.postgres.test_moving import IDS, SHARDS, THERE, Both, alias, watched
from tests.support.scratch import make_tables, scratch_database

TYPE = "shop.Cart"
JOURNAL_C = "journal_c"


class Three(Both):
    """DATABASE and `journal_b`, beside the journal `journal_c` on a server of its own."""

    def __init__(self, first: dict[str, Any], second: dict[str, Any], server: OwnPostgres) -> None:
        super().__init__(first, second)
        self.server = server
        self.further = {THERE: second, JOURNAL_C: dict(conninfo_to_dict(server.url))}
        make_tables(self.further[JOURNAL_C])
        for params, origin in ((first, ""), (second, "journal"), (self.further[JOURNAL_C], "journal")):
            with psycopg.connect(**params) as connection:
                known = "INSERT INTO sharding_cluster (cluster_id, origin) VALUES ('c1', %s)"
                connection.execute(known, [origin])
        self.run(
            "",
            "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " VALUES (1, %s, 'entity', %s, 'hash:crc32-1', '1', '', 'events')",
            TYPE, SHARDS,
        )  # fmt: skip
        self.run(
            "",
            "INSERT INTO sharding_shard (type_id, shard, epoch, step) SELECT 1, n, 7, 'stopped' FROM generate_series(0, %s) n",
            SHARDS - 1,
        )

    def begin(self, target: str, shards: list[int], until: str = "done") -> None:
        """Move shards, and stop behind a step."""
        steps = move_shards(self.params[""], self.further, TYPE, target, shards, "me", names=alias)
        while next(steps).name != until:
            pass
        steps.close()

    def cancel(self, gone: str | None = None) -> list[int]:
        return list(cancel(self.params[""], self.further, TYPE, "me", gone=gone, names=alias))

    def forget(self, gone: str | None = None) -> Erasure:
        settle_moves(self.params[""], self.further, TYPE, gone=gone, names=alias)
        return delete_left_copies(self.params[""], self.further, TYPE, None, "me", gone=gone, names=alias)

    def noted(self, action: str) -> list[tuple[Any, ...]]:
        return self.run("", "SELECT detail FROM sharding_decision WHERE action = %s", action)

    def may_be_resized(self) -> bool:
        return bool(self.run("", "SELECT * FROM sharding_resize_v1(%s, %s, 4, 'me')", TYPE, SHARDS))


@pytest.fixture
def three(servers: Servers, own_postgres: OwnPostgres) -> Iterator[Three]:
    with scratch_database(servers.database_url) as first, scratch_database(servers.database_url) as second:
        make_tables(first)
        make_tables(second)
        found = Three(first, second, own_postgres)
        yield found
        for connection in found.connections.values():
            connection.close()


def test_a_move_to_a_journal_that_is_gone_is_taken_back_without_it(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its command has died with messages taken out of the source, and shards closed."""
    three.fill("", IDS[:20])
    three.begin(THERE, [3, 5])
    three.run("", "DELETE FROM sharding_move")
    before = three.stored(THERE, {3, 5})
    switch = "_switch"

    def dies(*_: Any) -> None:
        three.server.kill()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(moving._Move, switch, dies)
        patch.setattr(moving._Move, "_unstash", lambda *_: None)
        patch.setattr(moving._Move, "_open", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            three.begin(JOURNAL_C, [3, 5])
    assert three.stored(THERE, {3, 5})["message"] == set()
    assert three.run("", "SELECT DISTINCT step FROM sharding_move") == [("closed",)]
    assert not three.may_be_resized()
    with pytest.raises(JournalDown, match=JOURNAL_C):
        three.cancel()
    with pytest.raises(
        CannotMove, match="Shards 3, 5 lie in journal_b, and journal_c has an unfinished copy"
    ):
        moving._refuse_gone(THERE, {}, [(THERE, JOURNAL_C, [3, 5])], alias)
    assert three.cancel(JOURNAL_C) == [3, 5]
    assert three.stored(THERE, {3, 5}) == before
    assert three.run("", "SELECT FROM sharding_move") == []
    assert watched(three, THERE) == 0
    assert three.noted("move_taken_back") == [("shards 3, 5 from journal_c, which is lost, by me",)]
    three.begin("", [3, 5])
    assert three.stored("", {3, 5}) == before


def test_copies_in_a_journal_that_is_gone_are_forgotten(three: Three) -> None:
    three.fill("", IDS[:20])
    before = three.stored("", {3, 5})
    three.begin(JOURNAL_C, [3])
    assert three.forget() != Erasure()
    three.begin("", [3])
    three.begin(THERE, [5])
    with pytest.raises(CannotMove, match="journal_c answers: it is not lost"):
        moving.refuse_answering(JOURNAL_C, three.further, alias)
    three.server.kill()
    assert not three.may_be_resized()
    with pytest.raises(JournalDown, match=JOURNAL_C):
        three.forget()
    assert three.forget(JOURNAL_C) != Erasure(), "what the other shard has left in another journal is deleted"
    assert three.run("", "SELECT FROM sharding_move") == []
    assert three.noted("left_copies_forgotten") == [("shards 3 in journal_c, which is lost, by me",)]
    for table, found in before.items():
        assert three.stored("", {3})[table] | three.stored(THERE, {5})[table] == found


def test_no_move_is_taken_back_without_a_journal_that_answers(three: Three) -> None:
    three.fill("", IDS[:20])
    three.begin(JOURNAL_C, [3], until="compared")
    with pytest.raises(CannotMove, match="journal_c answers: it is not lost"):
        three.cancel(JOURNAL_C)
    with psycopg.connect(**three.further[JOURNAL_C]) as there:
        assert there.execute("SELECT count(*) > 0 FROM sharding_event").fetchall() == [(True,)]
    assert three.cancel() == [3]
    with psycopg.connect(**three.further[JOURNAL_C]) as there:
        assert there.execute("SELECT count(*) FROM sharding_event").fetchall() == [(0,)]
