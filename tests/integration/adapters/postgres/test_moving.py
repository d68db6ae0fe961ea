"""A move of shards between two databases: all rows arrive, whatever stops the command, and a
message takes effect where it belongs. Nodes are not concerned: no shard has a home here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres import copied_rows, deletion, moving, moving_sessions, within
from sharding_app.adapters.postgres.further_journals import rows
from sharding_app.adapters.postgres.moving import cancel, move_shards, settle_moves
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.embedded import Servers
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.moving import CannotMove, Limits
from tests.acceptance.scenario import SECONDS
from tests.support.live import until
from tests.support.scratch import make_tables, scratch_database
from tests.support.slack import SLACK

Params = dict[str, Any]
SHARDS = 8
THERE = "journal_b"
STRIDE = 1 if SECONDS else 3
"""The command is killed at each statement, or at each third one where time is short: the tree that
is tested says at which.
"""
IDS = [f"e{number}" for number in range(60)]
LOCKS = (
    "FROM pg_locks WHERE locktype = 'advisory' AND objid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
"""Those of commands that move shards of the type, in one database: other tests share the server."""
ALL = {
    "event": "SELECT entity, seq, shard, name, version, payload::text, command_id, command, reply, partial, at",
    "snapshot": "SELECT entity, seq, shard, state::text, at",
    "remembered": "SELECT shard, entity, at",
    "message": "SELECT id, shard, entity, seq, position, target_type, target, command, args, due, key, failures, parked, error",
    "taken": "SELECT id, shard, entity, journal, partial, at",
}

STORED_BESIDE = (
    "INSERT INTO sharding_snapshot (type_id, shard, epoch, entity, seq, state)"
    " SELECT 1, s.shard, s.epoch, %s, 3, '{\"a\":  [1]}' FROM sharding_shard s WHERE s.type_id = 1 AND s.shard = %s",
    "INSERT INTO sharding_remembered (type_id, shard, epoch, entity)"
    " SELECT 1, s.shard, s.epoch, %s FROM sharding_shard s WHERE s.type_id = 1 AND s.shard = %s",
    "INSERT INTO sharding_message"
    " (type_id, shard, epoch, entity, id, seq, position, target_type, target, command, args, due)"
    " SELECT 1, s.shard, s.epoch, %s, 'm' || s.shard || '-' || %s, 5, 0, 'shop.Cart', 'e1', 'go', '\\x01', now()"
    " FROM sharding_shard s WHERE s.type_id = 1 AND s.shard = %s",
)


@pytest.fixture(scope="module")
def databases(servers: Servers) -> Iterator[tuple[Params, Params]]:
    with scratch_database(servers.database_url) as first, scratch_database(servers.database_url) as second:
        make_tables(first)
        make_tables(second)
        yield first, second


def alias(journal: str) -> str:
    return journal or "default"


class Both:
    """The two databases, and the shards of one type in them."""

    def __init__(self, first: Params, second: Params) -> None:
        self.params = {"": first, THERE: second}
        self.connections = {
            journal: psycopg.connect(**params, autocommit=True) for journal, params in self.params.items()
        }

    def run(self, journal: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.connections[journal].execute(query.encode(), values)
        return cursor.fetchall() if cursor.description is not None else []

    def move(self, target: str = THERE, shards: list[int] | None = None, at_once: int = 3) -> list[str]:
        further = {THERE: self.params[THERE]}
        steps = move_shards(
            self.params[""], further, "shop.Cart", target, shards, "a test", at_once=at_once, names=alias
        )
        return [step.name for step in steps]

    def cancel(self) -> list[int]:
        further = {THERE: self.params[THERE]}
        return list(cancel(self.params[""], further, "shop.Cart", "a test", names=alias))

    def delete(self) -> None:
        """Forget what moved shards have left."""
        for table in ("event", "snapshot", "move"):
            self.run("", f"TRUNCATE sharding_{table}")

    def stored(self, journal: str, shards: set[int] | None = None) -> dict[str, set[tuple[Any, ...]]]:
        """Return all rows of the type, without their epochs."""
        wanted = sorted(range(SHARDS) if shards is None else shards)
        return {
            table: set(
                self.run(
                    journal, f"{columns} FROM sharding_{table} WHERE type_id = 1 AND shard = ANY (%s)", wanted
                )
            )
            for table, columns in ALL.items()
        }

    def fill(self, journal: str, entities: list[str] = IDS, events: int = 5) -> None:
        for entity in entities:
            shard = shard_of(entity, SHARDS)
            self.run(
                journal,
                "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, command_id, reply)"
                " SELECT 1, %s::text, n, s.shard, s.epoch, 'Added', 1, '{\"n\":  1.10}', 'c' || n, '\\x00ff'"
                " FROM sharding_shard s, generate_series(1, %s) n WHERE s.type_id = 1 AND s.shard = %s",
                entity, events, shard,
            )  # fmt: skip
            for statement in STORED_BESIDE:
                self.run(journal, statement, *[entity] * (statement.count("%s") - 1), shard)

    def places(self) -> dict[int, str]:
        return dict(self.run("", "SELECT shard, journal FROM sharding_shard WHERE type_id = 1"))


@pytest.fixture
def both(databases: tuple[Params, Params], monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    found = Both(*databases)
    for journal in ("", THERE):
        names = ", ".join(
            f"sharding_{each}"
            for each in ("type", "shard", "move", "event", "snapshot", "remembered", "message", "taken", "change",
                         "projection", "position", "held", "decision", "node")
        )  # fmt: skip
        found.run(journal, f"TRUNCATE {names}")
        found.run(
            journal, "DROP TABLE IF EXISTS sharding_moving, sharding_moving_touched, sharding_moving_message"
        )
        for trigger, table in found.run(
            journal,
            "SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE tgname LIKE 'sharding\\_moving\\_%%'",
        ):
            found.run(journal, f"DROP TRIGGER {trigger} ON {table}")
    found.run(
        "",
        "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
        " VALUES (1, 'shop.Cart', 'entity', %s, 'x', '1', '', 'events')",
        SHARDS,
    )
    found.run(
        "",
        "INSERT INTO sharding_shard (type_id, shard, epoch, step) SELECT 1, n, 7, 'stopped' FROM generate_series(0, %s) n",
        SHARDS - 1,
    )
    monkeypatch.setattr(copied_rows, "ROWS_AT_FIRST", 40)
    monkeypatch.setattr(copied_rows, "ROWS_AT_LEAST", 40)
    monkeypatch.setattr(moving, "LIMITS", Limits(projections=0.2))
    monkeypatch.setattr(moving_sessions, "PAUSE_SECONDS", 0.01)
    yield found
    for connection in found.connections.values():
        connection.close()


def watched(both: Both, journal: str) -> int:
    return len(both.run(journal, "SELECT FROM pg_trigger WHERE tgname LIKE 'sharding\\_moving%%'")) + len(
        both.run(journal, "SELECT FROM pg_class WHERE relname LIKE 'sharding\\_moving%%' AND relkind = 'r'")
    )


def test_a_standby_has_the_copy_before_the_switch_and_the_switch_before_the_end(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator may have cancelled the wait of any commit before."""
    secured: list[tuple[str, str]] = []

    def secure(connection: Any) -> None:
        server = THERE if connection.info.dbname == both.params[THERE]["dbname"] else ""
        secured.append((server, both.places()[3]))
        within.secure(connection)

    monkeypatch.setattr(moving, "secure", secure)
    both.fill("", ["e1", "e2"])
    both.move(shards=[3])
    assert secured[:3] == [(THERE, ""), (THERE, ""), ("", THERE)], "messages are copied twice"
    assert secured[3:] == [("", THERE)], "the end covers what former calls have left"
    secured.clear()
    both.delete()
    both.move("", shards=[3])
    assert secured == [("", THERE), ("", THERE), ("", ""), ("", "")]


@pytest.mark.parametrize("by", ["the same call", "a deletion"])
def test_a_source_is_not_told_of_a_switch_of_a_former_call_before_a_standby_has_it(
    both: Both, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """The former session was ended while it waited for the standby: the next call finds the switch
    done. Told of it, the source would not take the shard back if a failover loses the switch.
    """

    def again() -> None:
        if by == "the same call":
            both.move("", shards=[3])
        else:
            settle_moves(both.params[""], {THERE: both.params[THERE]}, "shop.Cart", names=alias)

    def ends(*_: object) -> None:
        raise psycopg.OperationalError("the session was ended")

    both.move(shards=[3])
    both.delete()
    with monkeypatch.context() as patched:
        patched.setattr(moving._Move, "_leave", ends)
        with pytest.raises(psycopg.OperationalError):
            both.move("", shards=[3])
    assert both.places()[3] == ""
    with monkeypatch.context() as patched:
        patched.setattr(moving, "secure", ends)
        with pytest.raises(psycopg.OperationalError):
            again()
    left = "SELECT journal FROM sharding_shard WHERE shard = 3"
    assert both.run(THERE, left) == [("",)]
    again()
    assert both.run(THERE, left) == [("default",)]


def test_all_rows_arrive_and_a_history_stays_behind(both: Both) -> None:
    both.fill("")
    before = both.stored("")
    assert both.move()[-1] == "done"
    assert both.stored(THERE) == before
    left = both.stored("")
    assert (left["event"], left["snapshot"]) == (before["event"], before["snapshot"])
    assert [left[each] for each in ("remembered", "message", "taken")] == [set()] * 3
    assert set(both.places().values()) == {THERE}
    assert both.run("", "SELECT DISTINCT step, source, target FROM sharding_move") == [("moved", "", THERE)]
    assert watched(both, "") == 0


def test_it_moves_back_once_the_copy_is_deleted(both: Both) -> None:
    both.fill("")
    before = both.stored("")
    both.move()
    with pytest.raises(CannotMove, match="have left a copy in a former journal"):
        both.move("")
    both.delete()
    both.move("")
    assert both.stored("") == before
    left = both.stored(THERE)
    assert left["event"] == before["event"]
    assert [left[each] for each in ("remembered", "message")] == [set()] * 2
    assert both.run(THERE, "SELECT DISTINCT journal FROM sharding_shard") == [("default",)], (
        "it says so itself"
    )
    assert watched(both, THERE) == 0


def resize(both: Both, number: int) -> None:
    """Change the number of shards of the type, as an operator and the coordinator do."""
    both.run("", "UPDATE sharding_type SET extractor = 'hash:crc32-1'")
    known = both.run("", "SELECT number_of_shards FROM sharding_type")[0][0]
    assert both.run("", "SELECT * FROM sharding_resize_v1('shop.Cart', %s, %s, 'me')", known, number)
    both.run("", "UPDATE sharding_coordinator SET term = 1")
    both.run("", "INSERT INTO sharding_coordinator (term) VALUES (1) ON CONFLICT DO NOTHING")
    revision = both.run("", "SELECT shards_revision FROM sharding_type")[0][0]
    groups = min(known, number)
    both.run("", "SELECT * FROM sharding_renumber_v1(1, 'shop.Cart', %s, %s, 1, 10000)", revision, groups)
    assert both.run("", "SELECT number_of_shards, shards_wanted FROM sharding_type") == [(number, 0)]


def test_shards_of_a_former_number_lie_with_the_entities_that_they_get(both: Both) -> None:
    """Their rows outlast a resize to fewer, and stay where they are in a move."""
    both.fill("")
    resize(both, 4)
    both.move()
    both.delete()
    resize(both, 8)
    assert both.places() == dict.fromkeys(range(8), THERE)
    take_all(both, THERE)
    both.move("")
    both.run(THERE, "TRUNCATE sharding_event, sharding_snapshot")
    both.run("", "TRUNCATE sharding_move")
    resize(both, 4)
    both.move()
    both.delete()
    resize(both, 8)
    take_all(both, THERE)


def test_a_journal_that_all_shards_have_left_is_not_used(both: Both) -> None:
    """Also where shards of a former, larger number have a row that names it."""
    both.fill("")
    both.move()
    both.delete()
    resize(both, 4)
    both.move("")
    both.run("", "TRUNCATE sharding_move")
    for query in ("journals_used", "journals_with_copies"):
        for types in (None, ["shop.Cart"]):
            assert rows(both.connections[""], query, {"types": types}) == []


def decided(both: Both, shard: int, drawn: str) -> str:
    """Let a shard get its first home, where the weights have drawn a journal. Return its own."""
    both.run("", "INSERT INTO sharding_coordinator (term) VALUES (1) ON CONFLICT DO NOTHING")
    ((term,),) = both.run("", "SELECT term FROM sharding_coordinator")
    both.run(
        "",
        "SELECT sharding_decide_v1(%s, '{shop.Cart}', %s, '{0}', '{5}', '{home}', '{home}', %s)",
        term, [shard], [drawn],
    )  # fmt: skip
    return both.places()[shard]


def test_a_shard_whose_first_home_is_lost_beside_a_resize_is_found(both: Both) -> None:
    """It lies with those that it is to become one with. The next time it is the first of them."""
    both.run("", "DELETE FROM sharding_shard")
    both.run("", "UPDATE sharding_type SET extractor = 'hash:crc32-1'")
    assert both.run("", "SELECT * FROM sharding_resize_v1('shop.Cart', %s, 4, 'me')", SHARDS)
    assert [decided(both, 4, THERE), decided(both, 0, "")] == [THERE, THERE]
    for shard in (4, 0):
        taken = both.run(
            THERE,
            "SELECT taken FROM sharding_take_v1(1, 'shop.Cart', 8, 4, 0, 1, %s, '{5}', 'home')",
            [shard],
        )
        assert taken == [([shard],)]
    assert deserted(both) == []
    both.run("", "DELETE FROM sharding_shard")  # a standby that lacks them was promoted
    assert deserted(both) == [], "they have no rows yet"
    assert [decided(both, 0, ""), decided(both, 4, THERE)] == ["", ""]
    assert deserted(both) == [("shop.Cart", 0, ""), ("shop.Cart", 4, "")]
    both.run("", "UPDATE sharding_shard SET journal = %s", THERE)
    assert deserted(both) == []


def test_a_shard_that_has_moved_is_not_taken_for_one_that_is_lost(both: Both) -> None:
    both.fill("")
    both.move()
    take_all(both, THERE)
    assert deserted(both) == []
    both.delete()
    with both.connections[""].transaction(force_rollback=True):
        both.run("", "UPDATE sharding_shard SET journal = ''")
        assert deserted(both) == [("shop.Cart", shard, "") for shard in range(SHARDS)], "the move is lost"
    both.run("", "UPDATE sharding_shard SET home = NULL")
    both.move("")
    assert deserted(both) == []
    both.run("", "TRUNCATE sharding_move")
    assert deserted(both) == []


def deserted(both: Both) -> list[tuple[Any, ...]]:
    """Return the shards of the further journal that the doctor would report."""
    types, shards = [], []
    for name, shard in rows(both.connections[THERE], "lived_rows", {}):
        types.append(name)
        shards.append(shard)
    wanted = {"journal": THERE, "types": types, "shards": shards}
    return rows(both.connections[""], "lying_elsewhere", wanted)


def take_all(both: Both, journal: str) -> None:
    """Let a home take all shards of a further journal."""
    numbers = both.run(
        "", "SELECT number_of_shards, shards_wanted, groups_resized, shards_revision FROM sharding_type"
    )
    shards, epochs = zip(
        *both.run("", "UPDATE sharding_shard SET epoch = epoch + 1 RETURNING shard, epoch"), strict=True
    )
    taken = both.run(
        journal, "SELECT taken, left_behind FROM sharding_take_v1(1, 'shop.Cart', %s, %s, %s, %s, %s, %s, 'home')",
        *numbers[0], list(shards), list(epochs),
    )  # fmt: skip
    assert taken == [(sorted(shards), [])]


def test_some_shards_of_a_type(both: Both) -> None:
    both.fill("")
    before, others = both.stored("", {1, 4, 5}), both.stored("", {0, 2, 3, 6, 7})
    both.move(shards=[5, 1, 4], at_once=2)
    assert both.stored(THERE) == before
    assert both.stored("", {0, 2, 3, 6, 7}) == others
    assert {shard for shard, journal in both.places().items() if journal} == {1, 4, 5}


def test_what_is_written_meanwhile_is_copied(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    both.fill("")
    late = iter(range(10_000))

    def writes() -> None:
        number = next(late)
        both.fill("", [f"late{number}"], events=2)
        both.run("", "DELETE FROM sharding_event WHERE entity = %s AND seq < 3", IDS[number % len(IDS)])
        both.run("", "DELETE FROM sharding_event WHERE entity = %s", IDS[-1 - number])
        both.run("", "DELETE FROM sharding_snapshot WHERE entity = %s", IDS[-1 - number])

    further = {THERE: both.params[THERE]}
    for step in move_shards(both.params[""], further, "shop.Cart", THERE, None, "a test", at_once=SHARDS):
        if step.name in ("begun", "copied", "compared") and next(late) < 40:
            writes()
    assert both.stored(THERE)["event"] == both.stored("")["event"]
    assert both.stored(THERE)["snapshot"] == both.stored("")["snapshot"]
    assert len(both.stored(THERE)["event"]) > 200


def test_many_notes_of_the_same_rows_hide_no_others(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event and a snapshot of it leave one note each; more is written until the homes end."""
    monkeypatch.setattr(copied_rows, "NOTES_AT_ONCE", 4)
    monkeypatch.setattr(moving, "NOTES_AT_ONCE", 4)
    both.fill("", IDS[:20])
    wait = moving._Move._homes

    def beside(self: Any, *args: Any) -> Any:
        for _ in range(3):
            both.run("", "UPDATE sharding_snapshot SET at = now() WHERE entity = %s", IDS[0])
        both.fill("", ["late1", "late2", "late3"], events=2)
        return wait(self, *args)

    monkeypatch.setattr(moving._Move, "_homes", beside)
    both.move(at_once=SHARDS)
    assert both.stored(THERE)["event"] == both.stored("")["event"]
    assert both.stored(THERE)["snapshot"] == both.stored("")["snapshot"]


class Killed(BaseException):
    """The process of the command has ended here."""


def dies_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Kill the command at its statement of that number."""
    count = 0
    execute = psycopg.Connection.execute

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal count
        if self.info.get_parameters().get("application_name", "").endswith("moving"):
            count += 1
            if count == number:
                raise Killed
        return execute(self, *args, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", counted)


@pytest.mark.parametrize(("source", "target"), [("", THERE), (THERE, "")])
def test_it_goes_on_wherever_it_was_killed(
    both: Both, monkeypatch: pytest.MonkeyPatch, source: str, target: str
) -> None:
    if source:
        both.run(
            THERE,
            "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " VALUES (1, 'shop.Cart', '', %s, '', '', '', '')",
            SHARDS,
        )
        both.run(
            THERE,
            "INSERT INTO sharding_shard (type_id, shard, epoch, step) SELECT 1, n, 7, 'stopped' FROM generate_series(0, %s) n",
            SHARDS - 1,
        )
        both.run("", "UPDATE sharding_shard SET journal = %s", THERE)
    monkeypatch.setattr(copied_rows, "ROWS_AT_FIRST", 1000)
    monkeypatch.setattr(copied_rows, "ROWS_AT_LEAST", 1000)
    both.fill(source, IDS[:12], events=2)
    before = both.stored(source)
    number, kills = 1 + int(os.environ["ACCEPTANCE_DRAW"]) % STRIDE, 0
    while True:
        with monkeypatch.context() as patch:
            dies_at(patch, number)
            try:
                both.move(target, at_once=4)
            except Killed:
                kills += 1
            else:
                break
        # At any time all is in the place that the cluster's rows name.
        for shard, journal in both.places().items():
            found, wanted = (
                both.stored(journal, {shard}),
                {
                    table: {
                        row
                        for row in found_rows
                        if row[{"event": 2, "snapshot": 2, "remembered": 0}.get(table, 1)] == shard
                    }
                    for table, found_rows in before.items()
                },
            )
            if journal == source and source:
                both.run(THERE, "SELECT sharding_unstash_v1(1, %s)", [shard])
                found = both.stored(journal, {shard})
            assert found == wanted, (number, shard, journal)
        number += STRIDE
    assert both.stored(target) == before
    left = both.stored(source)
    assert [left[each] for each in ("remembered", "message", "taken")] == [set()] * 3
    assert watched(both, source) == 0
    assert kills == (number - 1) // STRIDE > 20


# -- Messages that take effect meanwhile ----------------------------------------------------------


def message_of(shard: int) -> str:
    """Return an entity of a shard."""
    return next(each for each in IDS if shard_of(each, SHARDS) == shard)


def a_mark(both: Both, journal: str, message: str, shard: int, of: str, *, partial: bool = False) -> None:
    """The home of a shard has taken a message whose row lies in another journal."""
    both.run(
        journal,
        "INSERT INTO sharding_taken (id, type_id, shard, entity, epoch, journal, partial)"
        " SELECT %s, 1, s.shard, %s, s.epoch, %s, %s FROM sharding_shard s WHERE s.type_id = 1 AND s.shard = %s",
        message, message_of(shard), of, partial, shard,
    )  # fmt: skip


@pytest.mark.parametrize("partial", [False, True])
def test_a_message_that_has_taken_effect_in_the_target_does_not_wait_there(both: Both, partial: bool) -> None:
    """Its owner moves to the journal of its target, which has marked it."""
    both.fill("", IDS[:20])
    both.move(shards=[2])
    ((mine,),) = both.run("", "SELECT id FROM sharding_message WHERE shard = 3 ORDER BY id LIMIT 1")
    a_mark(both, THERE, mine, 2, "default", partial=partial)
    both.move(shards=[3])
    found = both.run(THERE, "SELECT parked, error <> '' FROM sharding_message WHERE id = %s", mine)
    assert found == ([(True, True)] if partial else [])
    assert both.run(THERE, "SELECT count(*) FROM sharding_message WHERE shard = 3 AND NOT parked")[0][0] > 0
    assert both.run("", "SELECT FROM sharding_message WHERE id = %s", mine) == []


@pytest.mark.parametrize("partial", [False, True])
def test_a_message_that_a_moved_target_had_marked_does_not_come_again(both: Both, partial: bool) -> None:
    """Its target moves to the journal in which its row lies, with the mark."""
    both.fill("", IDS[:20])
    both.move(shards=[2])
    ((theirs,),) = both.run(THERE, "SELECT id FROM sharding_message WHERE shard = 2 ORDER BY id LIMIT 1")
    a_mark(both, "", theirs, 5, THERE, partial=partial)
    both.move(shards=[5])
    found = both.run(THERE, "SELECT parked, error <> '' FROM sharding_message WHERE id = %s", theirs)
    assert found == ([(True, True)] if partial else [])
    assert both.run(THERE, "SELECT id, partial FROM sharding_taken WHERE shard = 5") == [(theirs, partial)]
    assert both.run("", "SELECT FROM sharding_taken") == []


@pytest.mark.parametrize(("source", "target"), [("", THERE), (THERE, "")])
def test_a_message_that_is_taken_at_the_last_moment_does_not_come_along(
    both: Both, monkeypatch: pytest.MonkeyPatch, source: str, target: str
) -> None:
    both.fill("", IDS[:20])
    if source:
        both.move(shards=[3])
        both.delete()
    rest = moving._Move._put_rest
    taken: list[str] = []

    def beside(self: Any, *args: Any) -> None:
        rest(self, *args)
        if not taken:
            ((mine,),) = both.run(
                source,
                "DELETE FROM sharding_message WHERE id = (SELECT min(id) FROM sharding_message WHERE shard = 3) RETURNING id",
            )
            taken.append(mine)

    monkeypatch.setattr(moving._Move, "_put_rest", beside)
    before = both.stored(source, {3})["message"]
    both.move(target, shards=[3])
    assert both.stored(target, {3})["message"] == {row for row in before if row[0] not in taken}
    assert len(before) > len(taken) == 1


def test_a_message_that_is_taken_out_of_the_source_counts_as_there(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mark has let the copy go: without the mark the row would come, or come back, unmarked."""
    both.fill("", IDS[:20])
    both.move(shards=[2, 3])
    both.delete()
    ((mine,),) = both.run(THERE, "SELECT id FROM sharding_message WHERE shard = 3 ORDER BY id LIMIT 1")
    a_mark(both, "", mine, 5, THERE)
    rest = moving._Move._put_rest
    found: list[list[tuple[Any, ...]]] = []

    def dies(self: Any, *args: Any) -> None:
        if args[-1] == "moving_message":
            found.extend(
                rows(both.connections[each], "standing_for_marks", {"messages": [mine]})
                for each in ("", THERE)
            )
            raise Killed
        rest(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(moving._Move, "_put_rest", dies)
        patch.setattr(moving._Move, "_unstash", lambda *_: None)
        with pytest.raises(Killed):
            both.move("", shards=[3])
    assert found == [[], [(mine, False, 0.0)]]
    assert both.run(THERE, "SELECT FROM sharding_message WHERE id = %s", mine) == []
    both.run(THERE, "SELECT sharding_unstash_v1(1, %s)", [3])
    assert rows(both.connections[THERE], "standing_for_marks", {"messages": [mine]}) == [(mine, False, 0.0)]
    both.move("", shards=[3])
    assert rows(both.connections[THERE], "standing_for_marks", {"messages": [mine]}) == []


def lies_there(both: Both, shards: list[int]) -> None:
    both.fill("", IDS[:20])
    both.move(shards=shards)
    both.delete()


def two_timers(both: Both, seconds: int) -> None:
    """An entity of shard 3, which lies in the further journal, has a timer there, and one with the
    same key was set from outside that many seconds later.
    """
    lies_there(both, [3])
    entity = message_of(3)
    both.run(
        THERE,
        "UPDATE sharding_message SET key = 'k', id = 'own' WHERE id = (SELECT min(id) FROM sharding_message WHERE entity = %s)",
        entity,
    )
    both.run(
        "",
        "INSERT INTO sharding_message"
        " (type_id, shard, epoch, entity, id, seq, position, target_type, target, command, args, due, key, at)"
        " VALUES (1, 3, NULL, %s, 'outside', 5, 0, 'shop.Cart', %s, 'go', '\\x01', now(), 'k', now() + %s * interval '1 s')",
        entity, entity, seconds,
    )  # fmt: skip


@pytest.mark.parametrize(("seconds", "left"), [(-60, "own"), (60, "outside")])
def test_of_two_timers_with_one_key_the_later_one_counts(both: Both, seconds: int, left: str) -> None:
    """One from outside lies in DATABASE, where its entity's own timer comes to."""
    two_timers(both, seconds)
    both.move("", shards=[3])
    assert both.run("", "SELECT id FROM sharding_message WHERE key = 'k'") == [(left,)]
    assert both.run(THERE, "SELECT FROM sharding_message WHERE key = 'k'") == []


@pytest.mark.parametrize("seconds", [-60, 60])
def test_both_timers_stay_while_the_shard_does(
    both: Both, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """The command dies before its switch. The shard lies where it was, and both timers fire."""
    two_timers(both, seconds)

    def dies(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(moving._Move, "_switch", dies)
        with pytest.raises(Killed):
            both.move("", shards=[3])
    both.run(THERE, "SELECT sharding_unstash_v1(1, %s)", [3])
    assert both.run("", "SELECT id FROM sharding_message WHERE key = 'k'") == [("outside",)]
    assert both.run(THERE, "SELECT id FROM sharding_message WHERE key = 'k'") == [("own",)]


def test_messages_that_a_killed_command_took_out_outlast_the_next_move(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shard 3 is closed still, and none of its homes has put its messages back."""
    lies_there(both, [3, 5])
    before = both.stored(THERE, {3})
    rest = moving._Move._put_rest

    def dies(self: Any, *args: Any) -> None:
        if args[-1] == "moving_message":
            raise Killed
        rest(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(moving._Move, "_put_rest", dies)
        patch.setattr(moving._Move, "_unstash", lambda *_: None)
        patch.setattr(moving._Move, "_open", lambda *_: None)
        with pytest.raises(Killed):
            both.move("", shards=[3])
    both.move("", shards=[5])
    both.run(THERE, "SELECT sharding_unstash_v1(1, %s)", [3])
    assert both.stored(THERE, {3}) == before
    both.move("", shards=[3])
    assert both.stored("", {3}) == before
    assert watched(both, THERE) == 0


def test_an_erasure_while_messages_are_taken_out_erases_them_too(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    lies_there(both, [3])
    entity = message_of(3)
    rest = moving._Move._put_rest

    def erases(self: Any, *args: Any) -> None:
        if args[-1] == "moving_message":
            further = {THERE: both.params[THERE]}
            deletion.erase_entity(both.params[""], "shop.Cart", entity, "a test", further=further)
        rest(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(moving._Move, "_put_rest", erases)
        with pytest.raises(CannotMove):
            both.move("", shards=[3])
    both.move("", shards=[3])
    for journal in ("", THERE):
        stored = both.stored(journal, {3})
        for table, place in {"event": 0, "snapshot": 0, "remembered": 1, "message": 2}.items():
            assert entity not in {row[place] for row in stored[table]}, (journal, table)
    assert both.stored("", {3})["message"], "those of the others have moved"


def test_an_erasure_does_not_take_a_copy_for_the_entity(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shard moves between the look at its place and the fence."""
    both.fill("", IDS[:20])
    entity = message_of(3)
    run = deletion._rows

    def moves(connection: Any, query: str, *args: Any) -> Any:
        if query == "erase_fence" and not both.places()[3]:
            both.move(shards=[3])
        return run(connection, query, *args)

    monkeypatch.setattr(deletion, "_rows", moves)
    further = {THERE: both.params[THERE]}
    with pytest.raises(deletion.NodesAlive):
        deletion.erase_entity(both.params[""], "shop.Cart", entity, "a test", further=further)
    deletion.erase_entity(both.params[""], "shop.Cart", entity, "a test", further=further)
    assert both.run(THERE, "SELECT FROM sharding_event WHERE entity = %s", entity) == []


@pytest.mark.parametrize("failed_over", [False, True])
def test_a_switch_whose_answer_is_lost_leaves_no_messages(
    both: Both, monkeypatch: pytest.MonkeyPatch, failed_over: bool
) -> None:
    """The command puts the messages back. Or the source goes on without its last commits."""
    lies_there(both, [3])
    before = both.stored(THERE, {3})
    switch = moving._Move._switch

    def loses(self: Any, *args: Any) -> None:
        switch(self, *args)
        raise psycopg.OperationalError("the answer is lost")

    with monkeypatch.context() as patch:
        patch.setattr(moving._Move, "_switch", loses)
        with pytest.raises(psycopg.OperationalError):
            both.move("", shards=[3])
    assert both.places()[3] == ""
    if failed_over:
        both.run(
            THERE,
            "UPDATE sharding_shard SET epoch = 7, home = 'n-1', step = 'home', journal = '' WHERE shard = 3",
        )
    both.move("")
    assert both.stored("", {3}) == before
    left = both.stored(THERE, {3})
    assert [left[each] for each in ("remembered", "message", "taken")] == [set()] * 3
    assert both.run(THERE, "SELECT home, journal FROM sharding_shard WHERE shard = 3") == [(None, "default")]


# -- A switch that DATABASE has lost ---------------------------------------------------------------


def a_home_takes(both: Both, shard: int) -> int:
    """Let a home take a shard where it lies, in a further journal; return its epoch."""
    ((epoch,),) = both.run(
        "", "UPDATE sharding_shard SET epoch = epoch + 1 WHERE shard = %s RETURNING epoch", shard
    )
    ((taken,),) = both.run(
        THERE, "SELECT taken FROM sharding_take_v1(1, 'shop.Cart', %s, 0, 0, 0, ARRAY[%s], ARRAY[%s::bigint], 'n-1')",
        SHARDS, shard, epoch,
    )  # fmt: skip
    assert taken == [shard]
    return int(epoch)


def the_switch_is_lost(both: Both, source: str) -> None:
    """DATABASE has failed over, and its coordinator gives epochs of a new era."""
    both.run("", "UPDATE sharding_shard SET journal = %s, epoch = epoch + (1::bigint << 50)", source)
    both.run("", "UPDATE sharding_move SET step = 'copying'")


@pytest.mark.parametrize("command", ["again", "cancel"])
def test_a_switch_that_is_lost_costs_no_event_of_the_target(both: Both, command: str) -> None:
    """The target has events since, which the copy in the source has not."""
    both.fill("", IDS[:20])
    both.move(shards=[3])
    epoch = a_home_takes(both, 3)
    both.run(
        THERE,
        "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
        " VALUES (1, %s, 6, 3, %s, 'Paid', 1, '{}')",
        message_of(3), epoch,
    )  # fmt: skip
    stored = both.stored(THERE)
    the_switch_is_lost(both, "")
    with pytest.raises(CannotMove, match=r"In journal_b the shards 3 have a home\. DATABASE says"):
        both.move(shards=[3]) if command == "again" else both.cancel()
    assert both.stored(THERE) == stored
    assert both.run(THERE, "SELECT epoch FROM sharding_shard WHERE shard = 3") == [(epoch,)]
    # As docs/journals.md says.
    both.run("", "UPDATE sharding_shard SET journal = 'journal_b' WHERE type_id = 1 AND shard IN (3)")
    both.run(
        "",
        "INSERT INTO sharding_move (type_id, shard, source, target, step) VALUES (1, 3, '', 'journal_b', 'moved')"
        " ON CONFLICT (type_id, shard) DO UPDATE SET step = 'moved', closed_until = NULL",
    )
    assert both.cancel() == []
    a_home_takes(both, 3)
    assert both.stored(THERE) == stored


def test_a_source_that_was_left_is_not_copied_again(both: Both) -> None:
    """Its messages have gone with the shard. It has left for a third journal here."""
    lies_there(both, [3])
    both.run(THERE, "UPDATE sharding_shard SET journal = 'journal_c', home = NULL WHERE shard = 3")
    the_switch_is_lost(both, THERE)
    before = both.stored(THERE)
    with pytest.raises(CannotMove, match="Shards 3 are on their way from journal_b to default, and lie"):
        both.move("", shards=[3])
    assert both.run("", "SELECT FROM sharding_move") == []
    # As docs/journals.md says, where the source has the shard's last events.
    both.run(THERE, "UPDATE sharding_shard SET home = NULL, step = 'stopped', journal = '' WHERE shard = 3")
    both.move("", shards=[3])
    assert both.stored("", {3}) == before


def test_a_copy_that_comes_back_is_put_right_by_hand(both: Both) -> None:
    """The journal has failed over, and lacks that the shard has left it, and that its copy was
    deleted.
    """
    lies_there(both, [3])
    epoch = a_home_takes(both, 3)
    both.move("", shards=[3])
    both.run("", "DELETE FROM sharding_move")
    both.run(
        THERE,
        "UPDATE sharding_shard SET home = 'n-1', step = 'home', journal = '', epoch = %s WHERE shard = 3",
        epoch,
    )
    stored = both.stored("", {3})
    for _ in range(2):
        with pytest.raises(CannotMove, match="one of the two databases has lost a move"):
            both.move(shards=[3])
        with pytest.raises(CannotMove, match="one of the two databases has lost a move"):
            both.cancel()
    # As docs/journals.md says.
    both.run(THERE, "UPDATE sharding_shard SET home = NULL, step = 'stopped', journal = '' WHERE shard = 3")
    both.move(shards=[3])
    assert both.stored(THERE, {3}) == stored


# -- What is refused ------------------------------------------------------------------------------


def follow(both: Both, journal: str, *, fills: bool = False, position: str = "5:5:") -> None:
    both.run(
        "",
        "INSERT INTO sharding_projection (id, name, version, type_ids, server) VALUES (1, 'shop.Sums', 1, '{1}', 's')"
        " ON CONFLICT DO NOTHING",
    )
    both.run(
        "",
        "INSERT INTO sharding_position (projection_id, journal, first_slice, last_slice, position, fill_type)"
        " VALUES (1, %s, 0, 127, %s, %s)",
        journal, position, 1 if fills else None,
    )  # fmt: skip


def nothing_has_changed(both: Both) -> None:
    assert set(both.places().values()) == {""}
    assert both.run("", "SELECT FROM sharding_move WHERE step <> 'copying'") == []


def test_projections_have_to_be_close_behind(both: Both) -> None:
    both.fill("", IDS[:20])
    follow(both, "", fills=True)
    with pytest.raises(CannotMove, match=r"shop\.Sums \(version 1\) reads shop\.Cart for the first time"):
        both.move()
    both.run("", "UPDATE sharding_position SET fill_type = NULL")
    with pytest.raises(CannotMove, match="does not follow journal_b yet"):
        both.move()
    follow(both, THERE)
    change = (
        "INSERT INTO sharding_change (type_id, events, entities, slices, firsts, lasts)"
        " VALUES (1, 1, ARRAY[%s], '{3}', '{1}', '{1}')"
    )
    both.run("", change, message_of(3))
    assert both.move(shards=[2])[-1] == "done", "no event of its entities waits"
    with pytest.raises(CannotMove, match="has not handled all events of these shards"):
        both.move(shards=[3])
    assert both.places()[3] == ""
    both.run("", "TRUNCATE sharding_change")
    both.run(
        "",
        "INSERT INTO sharding_held (projection_id, type_id, entity, slice, next, parked) VALUES (1, 1, %s, 0, 7, true)",
        message_of(3),
    )
    with pytest.raises(CannotMove, match="waits in the projection"):
        both.move(shards=[3])
    # It has caught up. Where nothing else happens, its row stays.
    both.run("", "UPDATE sharding_held SET parked = false, until = '770'")
    before = both.stored("", {3})
    both.move(shards=[3])
    assert both.stored(THERE, {3}) == before
    assert both.run("", "SELECT FROM sharding_held") == []


def test_a_copy_is_no_change_for_projections(both: Both) -> None:
    both.fill("", IDS[:20])
    for journal in ("", THERE):
        follow(both, journal)
    both.run("", "UPDATE sharding_type SET followed = true")
    both.run("", "UPDATE sharding_shard SET followed = true")
    both.move()
    assert both.run(THERE, "SELECT FROM sharding_change") == []
    both.delete()
    both.move("")
    assert both.run("", "SELECT FROM sharding_change") == []
    assert both.run("", "SELECT DISTINCT followed FROM sharding_shard") == [(True,)]


def follow_in_both(both: Both) -> None:
    """Let a projection follow the type in both journals."""
    for journal in ("", THERE):
        follow(both, journal)
    both.run("", "UPDATE sharding_type SET followed = true")
    both.run("", "UPDATE sharding_shard SET followed = true")


def test_projections_learn_of_an_erasure_behind_a_move(both: Both) -> None:
    """Also before a home has taken the shard."""
    both.fill("", IDS[:20])
    follow_in_both(both)
    both.move()
    both.run(THERE, "UPDATE sharding_type SET followed = true")
    assert both.run(THERE, "SELECT DISTINCT followed FROM sharding_shard") == [(False,)]
    further = {THERE: both.params[THERE]}
    deletion.erase_entity(both.params[""], "shop.Cart", IDS[0], "a test", further=further)
    assert both.run(THERE, "SELECT entities FROM sharding_change WHERE erased") == [([IDS[0]],)]


def test_shards_of_a_move_that_was_taken_back_are_followed_behind_a_resize(both: Both) -> None:
    both.fill("")
    follow_in_both(both)
    both.move()
    both.delete()
    steps = move_shards(both.params[""], {THERE: both.params[THERE]}, "shop.Cart", "", None, "a test")
    while next(steps).name != "copied":
        pass
    steps.close()
    both.cancel()
    resize(both, 4)
    both.move("")
    both.run("", "TRUNCATE sharding_move")
    resize(both, 8)
    assert set(both.places().values()) == {""}
    assert both.run("", "SELECT DISTINCT followed FROM sharding_shard") == [(True,)]


def test_an_import_waits_for_a_projection_that_begins_to_follow_the_type(both: Both) -> None:
    """Otherwise the projection follows none of the shards whose rows the import makes."""
    both.run("", "DELETE FROM sharding_shard WHERE shard > 0")
    given = {"type_id": 1, "type": "shop.Cart", "by": "me", "action": "journal_importing"}
    with psycopg.connect(**both.params[""]) as follows, ThreadPoolExecutor(1) as pool:
        follows.execute("SELECT sharding_follow_v1('{1}', true)")
        begun = pool.submit(both.connections[""].execute, QUERIES["import_begin"], given)
        waits = (
            "SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND query LIKE '%made AS%'"
        )
        with psycopg.connect(**both.params[""], autocommit=True) as watch:
            until(lambda: watch.execute(waits).fetchone() is not None, 30, "the import waits")
        follows.commit()
        begun.result(30 * SLACK)
    assert both.run("", "SELECT count(*), bool_and(followed) FROM sharding_shard") == [(SHARDS, True)]


def test_a_node_that_does_not_use_the_journal(both: Both) -> None:
    both.run(
        "",
        "INSERT INTO sharding_node (incarnation, name, host, pid, age, state, lock_key_1, lock_key_2)"
        " VALUES ('n', 'node1', 'h', 1, 1, 'up', 1, 2)",
    )
    with pytest.raises(CannotMove, match="These nodes do not use journal_b: node1"):
        both.move()


def test_workers_of_a_projection(both: Both) -> None:
    """A journal that is down would stop them for all others."""
    both.run("", "UPDATE sharding_type SET name = 'workers:projection:shop.Sums'")
    further = {THERE: both.params[THERE]}
    with pytest.raises(CannotMove, match="stays in DATABASE"):
        list(move_shards(both.params[""], further, "workers:projection:shop.Sums", THERE, None, "a test"))
    assert both.run("", "SELECT FROM sharding_move") == []


def test_a_home_that_does_not_end(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "LIMITS", Limits(homes=0.1))
    both.fill("", IDS[:20])
    both.run("", "UPDATE sharding_shard SET home = 'n-1', step = 'home' WHERE shard = 4")
    with pytest.raises(CannotMove, match="Shards 4 still have a home"):
        both.move(shards=[4, 5])
    nothing_has_changed(both)
    both.run("", "UPDATE sharding_move SET target = 'journal_c'")
    with pytest.raises(CannotMove, match="are on their way to another journal"):
        both.move(shards=[4])


def ended(both: Both, journal: str, locks: str) -> None:
    """End the sessions that hold these locks, and wait until they have ended."""
    both.run(journal, f"SELECT pg_terminate_backend(pid) {locks}")
    until(lambda: not both.run(journal, f"SELECT {locks}"), 30, "the sessions have ended")


def test_a_command_that_was_frozen_changes_no_shard_that_lives_in_the_target(both: Both) -> None:
    both.fill("", IDS[:20])
    further = {THERE: both.params[THERE]}
    frozen = move_shards(both.params[""], further, "shop.Cart", THERE, None, "a test", at_once=SHARDS)
    for step in frozen:
        if step.name == "begun":
            break
    # Its session has ended meanwhile, another command has moved the shards, and a home has one.
    for journal in ("", THERE):
        ended(both, journal, LOCKS)
    both.move(at_once=SHARDS)
    both.run(THERE, "UPDATE sharding_shard SET home = 'n-2', step = 'home', epoch = epoch + 1")
    before = both.stored(THERE)
    with pytest.raises((CannotMove, psycopg.Error)):
        list(frozen)
    assert both.stored(THERE) == before


def test_a_command_whose_lock_is_lost_keeps_others_from_its_rows(both: Both) -> None:
    """DATABASE has failed over, and the frozen command may still delete or put rows elsewhere."""
    both.fill("", IDS[:20])
    further = {THERE: both.params[THERE]}
    frozen = move_shards(both.params[""], further, "shop.Cart", THERE, None, "a test", at_once=SHARDS)
    next(frozen)
    alone = f"{LOCKS} AND classid = (hashtext('sharding_move_journal')::bigint & 4294967295)::oid"
    ended(both, "", alone)
    with pytest.raises(CannotMove, match=r"of shop\.Cart is still at work in default"):
        both.move()
    with pytest.raises(CannotMove, match=r"of shop\.Cart is still at work in default"):
        both.cancel()
    nothing_has_changed(both)
    frozen.close()
    assert both.move()[-1] == "done"


def test_settings_of_a_role_do_not_weaken_a_move(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    for params in both.params.values():
        weak = {
            "synchronous_commit": "off", "statement_timeout": "30s", "idle_in_transaction_session_timeout": "1s",
            "idle_session_timeout": "1s", "transaction_timeout": "1s", "default_transaction_isolation": "serializable",
        }  # fmt: skip
        monkeypatch.setitem(params, "options", " ".join(f"-c {name}={value}" for name, value in weak.items()))
    both.fill("", IDS[:20])
    wait = moving._Move._homes
    shown: list[Any] = []

    def beside(self: Any, *args: Any) -> Any:
        for each in (self._cluster, self._source, self._target):
            kept = (*weak, "tcp_user_timeout", "tcp_keepalives_idle", "tcp_keepalives_interval")
            shown.extend(each.execute(f"SHOW {setting}").fetchone()[0] for setting in kept)
        return wait(self, *args)

    monkeypatch.setattr(moving._Move, "_homes", beside)
    both.move(at_once=SHARDS)
    assert shown == ["on", "0", "1min", "0", "0", "read committed", "60000", "10", "10"] * 3


@pytest.mark.parametrize(("source", "target"), [("", THERE), (THERE, "")])
def test_no_node_waits_for_rows_that_the_command_sends(
    both: Both, monkeypatch: pytest.MonkeyPatch, source: str, target: str
) -> None:
    """No time limit of a server ends a session that waits for them: the command may be frozen."""
    if source:
        both.fill("", IDS[:20])
        both.move(source)
        both.delete()
    else:
        both.fill(source, IDS[:20])
    before, sends, sent = both.stored(source), copied_rows.stage, list[str]()

    def frozen(*args: Any) -> None:
        with both.connections[target].transaction():
            both.run(target, "SET LOCAL lock_timeout = '1s'")
            both.run(target, "LOCK TABLE sharding_taken IN ROW EXCLUSIVE MODE")
            both.run(target, "SELECT FROM sharding_shard WHERE type_id = 1 FOR NO KEY UPDATE")
        sent.append(args[3])
        sends(*args)

    monkeypatch.setattr(moving, "stage", frozen)
    monkeypatch.setattr(copied_rows, "stage", frozen)
    both.move(target, at_once=SHARDS)
    assert set(sent) == {"event", "snapshot", "message", "remembered", "taken"}
    assert both.stored(target) == before


def test_an_owner_that_may_make_no_temporary_tables(both: Both) -> None:
    """It is told so before anything is copied."""
    ((database, me),) = both.run(THERE, "SELECT current_database(), current_user")
    for statement in (
        "CREATE ROLE owner_without_temporary", "GRANT CREATE ON SCHEMA public TO owner_without_temporary",
        "ALTER TABLE sharding_event OWNER TO owner_without_temporary",
        f'REVOKE TEMPORARY ON DATABASE "{database}" FROM PUBLIC',
    ):  # fmt: skip
        both.run(THERE, statement)
    try:
        with pytest.raises(
            CannotMove, match=r"owner_without_temporary has to .* temporary tables in journal_b"
        ):
            both.move()
    finally:
        for statement in (
            f'ALTER TABLE sharding_event OWNER TO "{me}"', "DROP OWNED BY owner_without_temporary",
            "DROP ROLE owner_without_temporary", f'GRANT TEMPORARY ON DATABASE "{database}" TO PUBLIC',
        ):  # fmt: skip
            both.run(THERE, statement)
    assert both.run("", "SELECT FROM sharding_move WHERE step <> 'copying'") == []


def test_rows_are_the_same_whatever_databases_write_times_like(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = "-c TimeZone=Asia/Tokyo -c DateStyle=German -c bytea_output=escape"
    monkeypatch.setitem(both.params[THERE], "options", options)
    both.fill("", IDS[:20])
    before = both.stored("")
    assert both.move()[-1] == "done"
    assert both.stored(THERE) == before


def test_a_move_is_taken_back(both: Both) -> None:
    both.fill("", IDS[:20])
    before = both.stored("")
    further = {THERE: both.params[THERE]}
    steps = move_shards(both.params[""], further, "shop.Cart", THERE, None, "a test")
    assert [next(steps).name for _ in range(2)] == ["begun", "copied"]
    steps.close()
    assert both.stored(THERE)["event"]
    assert both.cancel() == list(range(SHARDS))
    assert not any(both.stored(THERE).values())
    assert both.stored("") == before
    assert both.run("", "SELECT FROM sharding_move") == []
    assert watched(both, "") == 0
    assert both.move()[-1] == "done"


@pytest.mark.parametrize("server", ["target", "source"])
def test_a_copy_begins_again_behind_a_failover(both: Both, server: str) -> None:
    """The target lacks the last rows of the copy, or the source lacks rows that were copied."""
    both.fill("", IDS[:20])
    further = {THERE: both.params[THERE]}
    steps = move_shards(both.params[""], further, "shop.Cart", THERE, None, "a test")
    while next(steps).name != "compared":
        pass
    steps.close()
    if server == "target":
        both.run(THERE, "DELETE FROM sharding_event WHERE seq > 3")
    else:
        both.run("", "DELETE FROM sharding_event WHERE seq > 3")
        both.run("", "TRUNCATE sharding_moving_touched")
    before = both.stored("")
    with pytest.raises(CannotMove, match="Was default or journal_b put back to a former state"):
        both.move()
    both.run("", "UPDATE sharding_moving SET lineages = 'the former ones'")
    assert both.move()[-1] == "done"
    assert both.stored(THERE) == before


def test_a_call_that_was_killed_before_it_has_cleared_the_target_clears_it(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a former move that was taken back without the target are there."""
    both.fill("", IDS[:20])
    before = both.stored("")
    both.run(THERE, "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
        " VALUES (1, 'shop.Cart', '', %s, '', '', '', '')", SHARDS)  # fmt: skip
    both.run(
        THERE,
        "INSERT INTO sharding_shard (type_id, shard, epoch, step) SELECT 1, n, 7, 'stopped' FROM generate_series(0, %s) n",
        SHARDS - 1,
    )
    both.fill(THERE, IDS[20:24])

    def dies(_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(copied_rows.RowCopy, "clear", dies)
        with pytest.raises(Killed):
            both.move()
    assert both.move()[-1] == "done"
    assert both.stored(THERE) == before
