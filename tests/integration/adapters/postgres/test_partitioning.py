"""The journal gets another layout while it is written: nothing is lost, a kill at any step is
survived, and only what would be lost is refused.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres import moving_locks, partitioning
from sharding_app.adapters.postgres.deletion import remove_journal
from sharding_app.adapters.postgres.partitioning import (
    CannotPartition,
    Step,
    cancel,
    change_layout,
    erase_in_copy,
    read_layout,
)
from sharding_app.embedded import Servers
from sharding_app.operations.erasing import NotErased, erase
from sharding_app.ports.journal import Erasure
from tests.integration.adapters.postgres.journals import insert, partition, store, types
from tests.integration.adapters.postgres.test_migrations import alias, run_site
from tests.support.given import event_row
from tests.support.scratch import make_tables, scratch_database
from tests.support.slack import SLACK

TYPES = 3
CONTENT = "SELECT e.*::text FROM sharding_event e ORDER BY e.type_id, e.entity, e.seq"
SHAPES = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attcollation
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = 'sharding_event'::regclass AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT k.conname, pg_get_constraintdef(k.oid), NULL, NULL, NULL FROM pg_constraint k
WHERE k.conrelid = 'sharding_event'::regclass AND k.contype IN ('c', 'p')
UNION ALL
SELECT i.indexname, replace(i.indexdef, ' ON ONLY ', ' ON '), NULL, NULL, NULL FROM pg_indexes i
WHERE i.tablename = 'sharding_event'
UNION ALL
SELECT g.tgname, g.tgtype::text, NULL, g.tgenabled::text, NULL FROM pg_trigger g WHERE g.tgrelid = 'sharding_event'::regclass
ORDER BY 1, 2
"""


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "ROWS_AT_FIRST", 40)
    monkeypatch.setattr(partitioning, "next_rows", lambda rows, seconds: rows)
    monkeypatch.setattr(partitioning, "TOUCHED_AT_ONCE", 5)
    monkeypatch.setattr(partitioning, "TOUCHED_AT_SWITCH", 3)
    monkeypatch.setattr(partitioning, "PAUSE_SECONDS", 0.01)


@pytest.fixture
def journal(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        types(params, TYPES)
        insert(params, TYPES, entities=10, events=10)
        yield params


class Load:
    """Writes of all kinds, one at a time."""

    def __init__(self, params: dict[str, Any], seed: int) -> None:
        self.admin = psycopg.connect(**params, autocommit=True)
        self._chance = random.Random(seed)
        self._seqs: dict[tuple[int, str], int] = {}

    def work(self) -> None:
        number, entity = self._chance.randint(1, TYPES), f"e{self._chance.randint(1, 14)}"
        place = (number, entity)
        match self._chance.randint(0, 5):
            case 0:
                self.admin.execute(
                    "DELETE FROM sharding_event WHERE type_id = %s AND entity = %s AND seq < %s",
                    [*place, self._chance.randint(2, 8)],
                )
            case 1:
                self.admin.execute("DELETE FROM sharding_event WHERE type_id = %s AND entity = %s", place)
            case 2:
                self.admin.execute(
                    "UPDATE sharding_event SET payload = 'null' WHERE type_id = %s AND entity = %s AND seq = 5",
                    place,
                )
            case _:
                self.admin.execute(
                    "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
                    " SELECT %s, %s, coalesce(max(seq), 0) + more, 0, 1, 'B', 1, '{}' FROM sharding_event,"
                    "  generate_series(1, %s) more WHERE type_id = %s AND entity = %s GROUP BY more",
                    [*place, self._chance.randint(1, 4), *place],
                )

    def content(self) -> list[tuple[str]]:
        return self.admin.execute(CONTENT).fetchall()


def steps(params: dict[str, Any], **parts: int) -> Iterator[Step]:
    return change_layout(params, parts, "me")


@pytest.mark.parametrize("seed", range(4))
def test_what_is_written_meanwhile_is_there_afterwards(journal: dict[str, Any], seed: int) -> None:
    load = Load(journal, seed)
    with closing(load.admin):
        content = load.content()
        for parts in ({"T2": 3}, {"T2": 2}, {"T1": 4}, {"T1": 1}):
            seen = []
            for step in steps(journal, **parts):
                seen.append(step.name)
                assert load.content() == content, f"after {seen}"
                for _ in range(3):
                    load.work()
                content = load.content()
            assert (seen[0], seen[-2:]) == ("begun", ["switched", "dropped"])
        assert [each.tables for each in read_layout(journal).types] == [1, 2, 1]


FORMER = "SELECT type_id, entity, count(*) FROM sharding_event_before GROUP BY 1, 2"


def switched(params: dict[str, Any], **parts: int) -> None:
    """Change the layout as a run does that is ended before it drops the former table."""
    run = steps(params, **parts)
    while next(run).name != "switched":
        pass
    run.close()  # type: ignore[attr-defined]


def test_an_erasure_reaches_the_former_table_that_a_killed_run_has_left(
    journal: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioning, "EVENTS_AT_ONCE", 3)
    switched(journal)
    assert erase(journal, "T2", "e1", "me", 1.0, bool)[1] == Erasure(events=10, snapshots=1)
    with psycopg.connect(**journal) as admin:
        left = {(number, entity) for number, entity, _ in admin.execute(FORMER)}
        assert len(left) == TYPES * 10 - 1
        assert (2, "e1") not in left
    assert erase(journal, "T2", "e1", "me", 1.0, bool)[1] == Erasure()


def test_an_erasure_reaches_the_former_table_beside_the_command_that_is_to_drop_it(
    journal: dict[str, Any],
) -> None:
    """It waits for its lock, and may be killed before it has that."""
    run = steps(journal)
    while next(run).name != "switched":
        pass
    assert erase(journal, "T2", "e1", "me", 1.0, bool)[1].events == 10
    with psycopg.connect(**journal) as admin:
        assert (2, "e1", 10) not in admin.execute(FORMER).fetchall()
    run.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("parts", [{}, {"T2": 3}])
def test_an_erasure_reaches_a_copy_that_stands_still(
    journal: dict[str, Any], monkeypatch: pytest.MonkeyPatch, parts: dict[str, int]
) -> None:
    """Otherwise the entity stays there until the change goes on, or is taken back."""
    monkeypatch.setattr(partitioning, "EVENTS_AT_ONCE", 3)
    if parts:
        partition(journal)
    run = steps(journal, **parts)
    with psycopg.connect(**journal, autocommit=True) as admin:
        copied = "SELECT count(*) FROM sharding_event_next WHERE type_id = 2 AND entity = 'e1'"
        while not next(run).name.startswith("compared"):
            pass
        assert erase(journal, "T2", "e1", "me", 1.0, bool)[1].events == 10
        assert admin.execute(copied).fetchone() == (10,), "the command is at work: it follows"
        monkeypatch.setattr(moving_locks, "LEAVING_SECONDS", 30.0 * SLACK)
        ends = threading.Timer(0.3, run.close)  # type: ignore[attr-defined]
        ends.start()  # the server notices a while later that a killed command has gone
        assert erase(journal, "T2", "e1", "me", 1.0, bool)[1] == Erasure()
        ends.join()
        assert admin.execute(copied).fetchone() == (0,)
        remove_journal(journal, "T2", "me", bool)
        erase_in_copy(journal, {}, "T2")
        assert admin.execute("SELECT FROM sharding_event_next WHERE type_id = 2").rowcount == 0
        assert [step.name for step in steps(journal, **parts)][-1] == "dropped"
        assert admin.execute("SELECT count(*) FROM sharding_event").fetchone() == (100 * (TYPES - 1),)


def test_an_erasure_that_may_not_delete_in_a_former_table_says_so(journal: dict[str, Any]) -> None:
    partition(journal)
    switched(journal, T2=3)
    name = "eraser_of_former_tables"
    with psycopg.connect(**journal, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
        try:
            admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}")
            admin.execute(f"REVOKE ALL ON sharding_event_before FROM {name}")
            admin.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {name}")
            role = {**journal, "user": name, "password": "secret"}
            with pytest.raises(NotErased, match="sharding_event_before"):
                erase(role, "T2", "e1", "me", 1.0, bool)
            assert [each.name for each in steps(journal, T2=3)] == ["dropped"]
            assert erase(role, "T2", "e1", "me", 1.0, bool)[1] == Erasure()
        finally:
            admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.mark.parametrize("parts", [{}, {"T2": 3}])
def test_it_goes_on_after_a_kill_at_any_step(journal: dict[str, Any], parts: dict[str, int]) -> None:
    """Each run is ended after one more step than the last one, in the middle of the work."""
    load = Load(journal, 1)
    with closing(load.admin):
        content = load.content()
        for survived in range(1, 1000):
            run = steps(journal, **parts)
            done = [each.name for each in islice(run, min(4, survived))]
            run.close()  # type: ignore[attr-defined]
            assert load.content() == content
            if done[-1:] == ["dropped"] or not done:
                break
            load.work()
            content = load.content()
        layout = read_layout(journal)
        assert (layout.partitioned, layout.unfinished) == (True, "")
        assert [each.tables for each in layout.types] == [1, parts.get("T2", 1), 1]
        left = load.admin.execute(
            "SELECT relname FROM pg_class WHERE relname ~ '(next|before|touched|partitioning)' AND relkind IN ('r', 'p')"
        )
        assert left.fetchall() == []


def test_concurrent_appends_lose_nothing(journal: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "TOUCHED_AT_ONCE", 2000)
    monkeypatch.setattr(partitioning, "TOUCHED_AT_SWITCH", 500)
    ended, failed = threading.Event(), []
    written: dict[str, int] = {}

    def appends(entity: str) -> None:
        with psycopg.connect(**journal, autocommit=True, options=f"-c lock_timeout={5 * SLACK:g}s") as writer:
            seq = 0
            try:
                while not ended.is_set():
                    seq += 1
                    store(writer, event_row(1, entity, seq))
                    written[entity] = seq
            except psycopg.Error as error:
                failed.append(error)

    threads = [threading.Thread(target=appends, args=(f"w{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert [each.name for each in steps(journal)][-1] == "dropped"
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert failed == []
    with psycopg.connect(**journal) as admin:
        found = admin.execute(
            "SELECT entity, count(*), max(seq) FROM sharding_event_1 WHERE entity LIKE 'w%' GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert found == [(entity, seq, seq) for entity, seq in sorted(written.items())]


@pytest.mark.parametrize("after", [1, 3, 6])
def test_a_change_is_taken_back(journal: dict[str, Any], after: int) -> None:
    with psycopg.connect(**journal, autocommit=True) as admin:
        before = admin.execute(SHAPES).fetchall()
        run = steps(journal)
        list(islice(run, after))
        run.close()  # type: ignore[attr-defined]
        assert "events are copied" in read_layout(journal).unfinished
        with pytest.raises(CannotPartition, match="Another change of the layout was begun"):
            next(steps(journal, T1=2))
        assert cancel(journal, "me")
        assert not cancel(journal, "me")
        assert admin.execute(SHAPES).fetchall() == before
        noted = admin.execute("SELECT action, detail FROM sharding_decision ORDER BY id").fetchall()
        assert noted == [("journal_partitioning", "by me"), ("journal_partitioning_cancelled", "by me")]
        assert read_layout(journal).partitioned is False


def test_types_that_are_registered_meanwhile_and_later_have_a_partition(journal: dict[str, Any]) -> None:
    register = (
        "INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
        " VALUES (%s, 'event_sourced', 1, 'x', 'x', '', 'postgres') RETURNING id"
    )
    with psycopg.connect(**journal, autocommit=True) as admin:
        for number, _step in enumerate(steps(journal)):
            admin.execute(register, [f"New{number}"])
        with psycopg.connect(
            **journal
        ) as reader:  # of another type: attaching a partition does not wait for it
            assert reader.execute("SELECT FROM sharding_event").rowcount == 100 * TYPES
            admin.execute("SET lock_timeout = '2s'")
            admin.execute(register, ["Last"])
        admin.execute(
            "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) SELECT id, 0, 1, 'me', 'home' FROM sharding_type"
            " ON CONFLICT DO NOTHING"
        )
        ids = [number for (number,) in admin.execute("SELECT id FROM sharding_type ORDER BY id")]
        for number in ids:
            store(admin, event_row(number, "new", 1))
        found = admin.execute(
            "SELECT DISTINCT tableoid::regclass::text FROM sharding_event WHERE entity = 'new'"
        )
        assert {name for (name,) in found} == {f"sharding_event_{number}" for number in ids}
        options = admin.execute(
            "SELECT DISTINCT c.reloptions FROM pg_class c WHERE c.relkind = 'r' AND starts_with(c.relname, 'sharding_event_')"
        ).fetchall()
        assert len(options) == 1
        assert "autovacuum_vacuum_insert_scale_factor=0.05" in options[0][0]


def test_a_journal_without_a_type_is_partitioned(servers: Servers) -> None:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        partition(params)
        types(params, 1)
        assert [each.tables for each in read_layout(params).types] == [1]


def test_rights_and_settings_of_the_table_are_kept(journal: dict[str, Any]) -> None:
    with psycopg.connect(**journal, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS of_partitions")
        admin.execute("CREATE ROLE of_partitions")
        try:
            admin.execute("GRANT SELECT, INSERT ON sharding_event TO of_partitions")
            admin.execute("GRANT UPDATE (payload) ON sharding_event TO of_partitions WITH GRANT OPTION")
            admin.execute("ALTER DEFAULT PRIVILEGES GRANT DELETE, SELECT ON TABLES TO of_partitions, PUBLIC")
            admin.execute("ALTER TABLE sharding_event SET (autovacuum_vacuum_scale_factor = 0.003)")
            rights = (
                "SELECT relacl::text FROM pg_class WHERE relname = 'sharding_event' UNION ALL SELECT attacl::text"
                " FROM pg_attribute WHERE attrelid = 'sharding_event'::regclass AND attacl IS NOT NULL"
            )
            before = admin.execute(rights).fetchall()
            partition(journal)
            assert admin.execute(rights).fetchall() == before
            for right in ("SELECT", "DELETE"):
                may = "SELECT has_table_privilege('of_partitions', 'sharding_event_1', %s)"
                assert admin.execute(may, [right]).fetchone() == (False,)
            options = admin.execute(
                "SELECT reloptions FROM pg_class WHERE relname = 'sharding_event_2'"
            ).fetchone()
            assert options is not None
            assert "autovacuum_vacuum_scale_factor=0.003" in options[0]
        finally:
            admin.execute("DROP OWNED BY of_partitions")
            admin.execute("ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM PUBLIC")
            admin.execute("DROP ROLE of_partitions")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("CREATE VIEW carts AS SELECT * FROM sharding_event", "the view carts reads it"),
        ("CREATE PUBLICATION all_of_it FOR ALL TABLES", "the publication all_of_it publishes it"),
        ("ALTER FUNCTION sharding_note_touched_v1() OWNER TO pg_monitor", "belongs to pg_monitor"),
        ("ALTER TABLE sharding_event ENABLE ROW LEVEL SECURITY", "row-level security"),
        ("CREATE TABLE mine (LIKE sharding_event) INHERITS (sharding_event)", "mine inherits from it"),
    ],
)
def test_what_would_stay_with_the_former_table_is_named(
    journal: dict[str, Any], made: str, told: str
) -> None:
    with psycopg.connect(**journal, autocommit=True) as admin:
        admin.execute(made.encode())
    with pytest.raises(CannotPartition, match=told):
        next(steps(journal))


def test_an_index_of_one_partition_is_in_the_way_of_its_division_alone(journal: dict[str, Any]) -> None:
    """The copy has the indexes of the table. One that is made meanwhile is told at the switch."""
    partition(journal)
    with psycopg.connect(**journal, autocommit=True) as admin:
        admin.execute("CREATE INDEX mine ON sharding_event_1 (at)")
        with pytest.raises(CannotPartition, match="partition sharding_event_1 has the index mine"):
            next(change_layout(journal, {"T1": 2}, "me"))
        partition(journal, T2=2)
        changes = change_layout(journal, {"T3": 2}, "me")
        next(changes)
        admin.execute("CREATE INDEX too ON sharding_event_3 (at)")
        with pytest.raises(CannotPartition, match=r"Index too has no counterpart.*--cancel"):
            list(changes)
        assert cancel(journal, "me")


def test_rights_on_a_partition_are_kept(journal: dict[str, Any]) -> None:
    partition(journal)
    with psycopg.connect(**journal, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS of_one_partition")
        admin.execute("CREATE ROLE of_one_partition")
        try:
            admin.execute("GRANT TRUNCATE ON sharding_event_1 TO of_one_partition")
            partition(journal, T1=2)
            may = "SELECT has_table_privilege('of_one_partition', 'sharding_event_1', 'TRUNCATE')"
            assert admin.execute(may).fetchone() == (True,)
        finally:
            admin.execute("DROP OWNED BY of_one_partition")
            admin.execute("DROP ROLE of_one_partition")


def test_another_role_than_the_owner_is_refused(journal: dict[str, Any]) -> None:
    with psycopg.connect(**journal, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS no_owner")
        admin.execute("CREATE ROLE no_owner LOGIN PASSWORD 'x'")
    try:
        with pytest.raises(CannotPartition, match="run this command as that role"):
            next(change_layout({**journal, "user": "no_owner", "password": "x"}, {}, "me"))
    finally:
        with psycopg.connect(**journal, autocommit=True) as admin:
            admin.execute("DROP ROLE no_owner")


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"T9": 2}, "knows no type 'T9'"),
        ({"T1": 0}, "1 to 128 parts"),
        ({"T1": 129}, "1 to 128 parts"),
    ],
)
def test_wrong_parts_are_refused(journal: dict[str, Any], parts: dict[str, int], told: str) -> None:
    with pytest.raises(CannotPartition, match=told):
        next(steps(journal, **parts))


def test_one_change_at_a_time(journal: dict[str, Any]) -> None:
    with closing(steps(journal)) as first:  # type: ignore[type-var]
        next(first)
        with pytest.raises(CannotPartition, match="Another sharding_partition is at work"):
            next(steps(journal))
    partition(journal)
    with pytest.raises(CannotPartition, match="One type at a time: T1 and T2"):
        next(steps(journal, T1=2, T2=2))
    assert list(steps(journal)) == [], "it is laid out so"


def test_who_holds_the_table_is_named_and_the_copy_waits(
    journal: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioning, "TRIES", 2)
    with psycopg.connect(**{**journal, "application_name": "a-dump"}) as holder:
        holder.execute("SELECT FROM sharding_event")
        with pytest.raises(
            CannotPartition, match=r"in use, and was so at each of 2 tries: process \d+ \(\w+ a-dump"
        ):
            list(steps(journal))
        with psycopg.connect(**journal, autocommit=True, options="-c lock_timeout=1s") as writer:
            store(writer, event_row(1, "new", 1))
    partition(journal)
    with psycopg.connect(**journal) as admin:
        assert admin.execute("SELECT count(*) FROM sharding_event WHERE entity = 'new'").fetchone() == (1,)


def test_a_copy_that_differs_is_not_used(journal: dict[str, Any]) -> None:
    run = steps(journal)
    with psycopg.connect(**journal, autocommit=True) as admin:
        for step in run:
            if step.name == "copied" and step.done == 100 * TYPES:
                admin.execute(
                    "UPDATE sharding_event_next SET payload = '{}' WHERE type_id = 2 AND entity = 'e3' AND seq = 4"
                )
                break
        with pytest.raises(
            CannotPartition, match="differs from the journal in type number 2: 100 events there, 100 here"
        ):
            list(run)
        assert read_layout(journal).partitioned is False


def test_a_removal_during_a_change_is_in_the_copy(journal: dict[str, Any]) -> None:
    partition(journal)
    run = steps(journal, T2=2)
    for step in run:
        if step.name == "copied":
            assert remove_journal(journal, "T2", "me", bool) == Erasure(events=100, snapshots=10)
            break
    list(run)
    with psycopg.connect(**journal) as admin:
        assert admin.execute("SELECT type_id, count(*) FROM sharding_event GROUP BY 1 ORDER BY 1").fetchall() == [
            (1, 100), (3, 100),
        ]  # fmt: skip


def test_idle_projections_pass_the_copied_rows(journal: dict[str, Any]) -> None:
    """To a projection a copied row is of the transaction that has copied it."""
    with psycopg.connect(**journal, autocommit=True) as admin:
        admin.execute("UPDATE sharding_type SET followed = true WHERE id = 2")
        partition(journal)
        found = admin.execute("SELECT type_id, events, cardinality(entities) FROM sharding_change").fetchall()
        assert found == [(2, 0, 0)]
        later = admin.execute(
            "SELECT bool_and(c.xid::text::bigint > e.xmin::text::bigint) FROM sharding_change c, sharding_event e"
        ).fetchone()
        assert later == (True,)


def test_it_is_made_so_at_the_first_migration(servers: Servers, tmp_path: Path) -> None:
    shapes = []
    for sharding in ({}, {"PARTITION_JOURNAL": True}):
        with scratch_database(servers.database_url) as params:
            run_site({"default": alias(params)}, [["migrate"]], sharding)  # type: ignore[arg-type]
            with psycopg.connect(**params, autocommit=True) as admin:
                shapes.append(admin.execute(SHAPES).fetchall())
                types(params, 2)
            if sharding:
                layout = read_layout(params)
                assert layout.partitioned
                assert [(each.type, each.tables) for each in layout.types] == [("T1", 1), ("T2", 1)]
                insert(params, 2, entities=3, events=3)
                back = run_site({"default": alias(params)}, [["migrate", "sharding", "zero"]], sharding)  # type: ignore[arg-type]
                assert not [name for name in back["default"] if name.startswith("sharding_")]
            else:
                partition(params)
                with psycopg.connect(**params, autocommit=True) as admin:
                    shapes.append(admin.execute(SHAPES).fetchall())
    assert shapes[0] == shapes[1], "partitioned later"
    assert shapes[0] == shapes[2], "partitioned from the beginning"
