"""A command whose session was ended while it waited for the synchronous standby, and which is run
again: it finds its work done, and does not say so before the standby has it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.core.management.base import CommandError, OutputWrapper
from django.db import connection, connections
from django.test import override_settings

from sharding_app.adapters.django import further_journals
from sharding_app.adapters.personal.vault import Vault, new_row
from sharding_app.adapters.postgres import deletion
from sharding_app.adapters.postgres.deletion import Removal, remove_data, remove_journal
from sharding_app.adapters.postgres.joined_journals import Journals
from sharding_app.adapters.postgres.left_copies import delete_left_copies
from sharding_app.adapters.postgres.moving import cancel as cancel_move
from sharding_app.adapters.postgres.moving import move_shards
from sharding_app.adapters.postgres.partitioning import Step, change_layout
from sharding_app.adapters.postgres.partitioning import cancel as cancel_layout
from sharding_app.embedded import OwnPostgres, Servers
from sharding_app.management.commands import sharding_import, sharding_rescale, sharding_resize
from sharding_app.management.commands.sharding_export import _write
from sharding_app.management.progress import Progress
from sharding_app.operations import connectivity, journals, messages, projections, rewrapping
from sharding_app.operations.archiving import Moved, archive_entities
from sharding_app.operations.erasing import erase
from sharding_app.operations.journal_file import FORMAT, Header, checked
from sharding_app.operations.rewrapping import Secrets
from sharding_app.ports.journal import Erasure
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.records import NumberOfWorkers, TypeConfig
from tests.integration.adapters.postgres.test_left_copies import move as left_copy
from tests.integration.adapters.postgres.test_several_journals import (
    HERE,
    NUMBER,
    SHARDS,
    THERE,
    TYPE,
    Params,
    Two,
    sql,
)
from tests.support.postgres_pair import PostgresPair
from tests.support.scratch import make_tables, scratch_database
from tests.support.slack import SLACK

silent = Progress(OutputWrapper(StringIO()), quiet=True)
WAITERS = "SELECT pid, query_start, backend_xid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()"
SECONDS = 20 * SLACK


@pytest.fixture(scope="module")
def two_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresPair]:
    place = tmp_path_factory.mktemp("pair")
    beside = place / "standby"
    beside.mkdir()
    with PostgresPair(OwnPostgres(place).start(), beside) as pair:
        pair.attach()
        yield pair


class Watched:
    """A database with a synchronous standby that can be away."""

    def __init__(self, pair: PostgresPair, params: Params) -> None:
        self.pair = pair
        self.params = params
        self._threads = ThreadPoolExecutor(2)
        self._wait: tuple[Any, ...] | None = None
        "The one that was seen last."
        self._ended: tuple[Any, ...] | None = None
        "The one that was cancelled last. It is listed until its session has taken that in."

    def begin(self, work: Callable[[], Any]) -> Future[Any]:
        return self._threads.submit(work)

    def waiter(self, work: Future[Any]) -> int:
        """Return the session in which the work waits for the standby."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            found = sql(self.params, WAITERS)
            if found and found[0] != self._ended:
                self._wait = found[0]
                return int(found[0][0])
            if work.done():
                pytest.fail(f"it ended without a wait for the standby: {work.exception() or work.result()}")
            time.sleep(0.01)
        pytest.fail("it does not wait for the standby")

    def statement(self, work: Future[Any]) -> str:
        """Return the statement that waits for the standby."""
        found = sql(self.params, "SELECT query FROM pg_stat_activity WHERE pid = %s", self.waiter(work))
        return str(found[0][0]) if found else ""

    def interrupt(self, work: Future[Any], how: str = "pg_terminate_backend") -> None:
        """End the session in which it waits, or cancel its wait."""
        sql(self.params, f"SELECT {how}(%s)", self.waiter(work))
        self._ended = self._wait
        if how == "pg_terminate_backend":
            with pytest.raises(psycopg.OperationalError):
                work.result(SECONDS)

    def has_ended(self, purpose: str) -> None:
        """Wait until the server has ended the sessions of a command that is over. They delete their
        temporary tables, which waits for the standby too.
        """
        until = time.monotonic() + SECONDS
        there = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE %s"
        while sql(self.params, there, f"%/{purpose}"):
            assert time.monotonic() < until
            time.sleep(0.01)

    def secures(self, work: Callable[[], Any]) -> Future[Any]:
        """Begin work without the standby, and cancel each of its waits up to that of `secure`."""
        self.pair.cut()
        begun = self.begin(work)
        while "'secure'" not in self.statement(begun):
            self.interrupt(begun, "pg_cancel_backend")
        return begun

    def ends_with_the_standby(self, work: Future[Any]) -> Any:
        """Return the result of work that waits for the standby, and ends when that is back."""
        self.waiter(work)
        self.pair.mend()
        return work.result(SECONDS)


@pytest.fixture
def watched(two_servers: PostgresPair) -> Iterator[Watched]:
    with scratch_database(two_servers.primary.url) as params:
        make_tables(params)
        made = Watched(two_servers, params)
        yield made
        two_servers.mend()
        made._threads.shutdown()


@pytest.fixture
def other(servers: Servers) -> Iterator[Params]:
    """A database on a server that has no trouble."""
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        yield params


def cut_before(watched: Watched, patched: pytest.MonkeyPatch, where: Any, name: str) -> threading.Event:
    """Let the standby be away from the first call of a function with the watched database on.

    The event is set then. Earlier waits for the standby end by themselves.
    """
    real = getattr(where, name)
    is_cut = threading.Event()

    def cut(connection: Any, *args: Any, **options: Any) -> Any:
        if connection.info.dbname == watched.params["dbname"]:
            watched.pair.cut()
            is_cut.set()
        return real(connection, *args, **options)

    patched.setattr(where, name, cut)
    return is_cut


@pytest.mark.parametrize("journal", ["", "b"])
def test_an_erasure_that_finds_nothing_waits_for_the_standby(
    watched: Watched, other: Params, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """Told at once, a person would take the entity for erased, which a failover brings back."""
    two = Two(other, watched.params) if journal else Two(watched.params, other)
    two.fill()
    entity = THERE[0] if journal else HERE[0]

    def work() -> Erasure:
        return erase(two.own, TYPE, entity, "me", 1.0, bool, two.further)[1]

    with monkeypatch.context() as patched:
        is_cut = cut_before(watched, patched, deletion, "_erase")
        first = watched.begin(work)
        assert is_cut.wait(SECONDS)
        watched.interrupt(first)
    assert watched.ends_with_the_standby(watched.begin(work)) == Erasure()


def test_an_erasure_waits_for_the_standby_of_a_copy(watched: Watched, other: Params) -> None:
    two = Two(other, watched.params)
    two.fill()
    copy, _ = left_copy(two, THERE[0])
    assert copy is watched.params

    def work() -> Erasure:
        return erase(two.own, TYPE, THERE[0], "me", 1.0, bool, two.further)[1]

    watched.pair.cut()
    first = watched.begin(work)
    watched.interrupt(first)
    assert not sql(copy, "SELECT FROM sharding_event WHERE entity = %s", THERE[0]), "it is visible"
    assert watched.ends_with_the_standby(watched.begin(work)) == Erasure()


@pytest.mark.parametrize("how", ["pg_terminate_backend", "pg_cancel_backend"])
def test_a_copy_is_forgotten_once_the_standby_knows_that_it_is_gone(
    watched: Watched, other: Params, how: str
) -> None:
    """Its rows would come back with a failover, and no erasure would go through them."""
    two = Two(other, watched.params)
    two.fill()
    copy, _ = left_copy(two, THERE[0])

    def work() -> Erasure:
        return delete_left_copies(two.own, two.further, TYPE, None, "me")

    watched.pair.cut()
    deleting = watched.begin(work)
    while "'secure'" not in watched.statement(deleting):  # it deletes events, then snapshots
        watched.interrupt(deleting, how)
        deleting = deleting if how == "pg_cancel_backend" else watched.begin(work)
    assert not sql(copy, "SELECT FROM sharding_event WHERE entity = %s", THERE[0]), "it is visible"
    assert sql(two.own, "SELECT shard FROM sharding_move") == [(shard_of(THERE[0], SHARDS),)]
    watched.ends_with_the_standby(deleting)
    assert not sql(two.own, "SELECT FROM sharding_move")


@pytest.mark.parametrize("again", ["rewrap", "look"])
def test_an_old_secret_is_not_said_to_be_done_with_before_the_standby_has_the_new_keys(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    """Taken away, the secret would be missing after a failover, and with it the persons' data."""
    new, old = b"a new secret of the settings", b"an old secret of the settings"
    monkeypatch.setattr(rewrapping, "get_settings", lambda: SimpleNamespace(personal_secrets=[new, old]))
    monkeypatch.setattr(rewrapping, "_vault", lambda: Vault([new, old]))
    row = new_row()
    add = "INSERT INTO sharding_subject (id, mark, wrapped) VALUES (%s, %s, %s)"
    sql(watched.params, add, row, row, Vault([old]).new_key(row))
    assert rewrapping.look(watched.params) == Secrets(new=0, old=1, unknown=0)

    watched.pair.cut()
    watched.interrupt(watched.begin(lambda: rewrapping.rewrap(watched.params, "me", bool)))
    works = {
        "rewrap": lambda: rewrapping.rewrap(watched.params, "me", bool).secrets,
        "look": lambda: rewrapping.look(watched.params),
    }
    found = watched.ends_with_the_standby(watched.begin(works[again]))
    assert found == Secrets(new=1, old=0, unknown=0)


def test_a_removal_of_a_types_rows_waits_for_the_standby(watched: Watched, other: Params) -> None:
    two = Two(other, watched.params)
    two.fill()

    def work() -> int:
        return remove_journal(two.own, TYPE, "me", bool, further=two.further).events

    removing = watched.begin(work)
    assert removing.result(SECONDS) > 0
    watched.pair.cut()
    removing = watched.begin(work)
    for _ in range(3):  # each wait that an administrator cancels is followed by another one
        watched.interrupt(removing, "pg_cancel_backend")
    while "'secure'" not in watched.statement(removing):
        watched.interrupt(removing, "pg_cancel_backend")
    assert watched.ends_with_the_standby(removing) == 0


@pytest.mark.parametrize("journal", ["", "b"])
def test_a_removal_of_the_clusters_rows_waits_for_the_standby(
    watched: Watched, other: Params, journal: str
) -> None:
    """Processes that were frozen are fenced by them: after a failover they would write again."""
    two = Two(other, watched.params) if journal else Two(watched.params, other)
    two.fill()

    def work() -> Removal:
        return remove_data(two.own, [TYPE], by="me", messages=True, further=two.further)

    removing = watched.secures(work)
    if journal:
        assert sql(two.own, "SELECT FROM sharding_shard WHERE home IS NOT NULL"), "the cluster's rows go next"
    watched.ends_with_the_standby(removing)
    assert not sql(two.own, "SELECT FROM sharding_shard WHERE home IS NOT NULL")


@pytest.mark.parametrize("ends", ["changes", "is cancelled", "was cancelled"])
def test_a_change_of_the_layout_waits_for_the_standby(watched: Watched, other: Params, ends: str) -> None:
    two = Two(watched.params, other)
    two.fill()
    if ends != "changes":
        assert next(change_layout(two.own, {}, "me")) == Step("begun")
    if ends == "was cancelled":
        assert cancel_layout(two.own, "me")
    works: dict[str, Callable[[], object]] = {
        "changes": lambda: list(change_layout(two.own, {}, "me")),
        "is cancelled": lambda: cancel_layout(two.own, "me"),
        "was cancelled": lambda: cancel_layout(two.own, "me"),
    }
    changing = watched.secures(works[ends])
    assert watched.ends_with_the_standby(changing) != (ends == "was cancelled")


@pytest.mark.parametrize("journal", ["", "b"])
def test_a_move_is_taken_back_once_the_standby_has_lost_its_copy(
    watched: Watched, other: Params, journal: str
) -> None:
    """A copy that comes back with a failover would be known to no erasure."""
    two = Two(other, watched.params) if journal else Two(watched.params, other)
    two.fill()
    shard = shard_of(HERE[0], SHARDS)
    moving = move_shards(two.own, two.further, TYPE, "b", [shard], "me")
    while next(moving).name != "copied":
        pass
    moving.close()
    watched.has_ended("moving")
    noted = "SELECT FROM sharding_move WHERE step <> 'moved'"
    assert sql(two.own, noted)

    def work() -> list[int]:
        return cancel_move(two.own, two.further, TYPE, "me")

    cancelling = watched.secures(work)
    assert sql(two.own, noted), "it is forgotten last"
    assert watched.ends_with_the_standby(cancelling) == [shard]
    assert not sql(two.own, noted)
    watched.pair.cut()
    assert watched.ends_with_the_standby(watched.begin(work)) == [] if not journal else work() == []


@pytest.mark.parametrize("journal", ["", "b"])
def test_an_import_waits_for_the_standby(
    watched: Watched, other: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """The file may be thrown away once it is done."""
    two = Two(other, watched.params) if journal else Two(watched.params, other)
    two.fill()
    file = tmp_path / "carts.jsonl"
    with file.open("wb") as out, Journals(two.own, two.further, read_only=True) as stored:
        known = stored.type(TYPE)
        header = Header(FORMAT, TYPE, known.config.kind, stored.cluster_id())
        _write(stored, known, header, out, None, silent)
    monkeypatch.setattr(sharding_import, "entity_types", lambda _: [])
    monkeypatch.setattr(sharding_import, "get_settings", lambda: SimpleNamespace(journal_weights={}))
    command = sharding_import.Command()
    monkeypatch.setattr(command, "further", lambda: two.further)

    def work() -> tuple[int, int, list[str]]:
        return command._put(two.own, checked(file), file, sharding_import._state(file), None, silent)

    importing = watched.secures(work)
    stored_rows, there, others = watched.ends_with_the_standby(importing)
    assert (stored_rows, others) == (0, [])
    assert there > 0


@pytest.mark.parametrize("setting", ["on", "local"])
def test_what_a_projection_has_seen_waits_for_the_standby(
    watched: Watched, django_db_blocker: Any, setting: str
) -> None:
    """A position that is committed elsewhere would be ahead of the journal after a failover."""
    sql(watched.params, f"ALTER DATABASE {watched.params['dbname']} SET synchronous_commit = {setting}")
    given = watched.params
    place = {"NAME": given["dbname"], "HOST": given["host"], "PORT": given["port"], "USER": given["user"]}

    def work() -> int:
        journal = connection.copy("watched")
        journal.settings_dict = {**journal.settings_dict, **place, "PASSWORD": given["password"]}
        with closing(journal), journal.cursor() as cursor:
            return further_journals.secure(cursor, 7, [0])

    with django_db_blocker.unblock():
        watched.pair.cut()
        securing = watched.begin(work)
        for _ in range(3):
            watched.interrupt(securing, "pg_cancel_backend")
        while "'secure'" not in watched.statement(securing):
            watched.interrupt(securing, "pg_cancel_backend")
        watched.ends_with_the_standby(securing)
    assert sql(watched.params, "SELECT projection_id FROM sharding_secured") == [(7,)]


@pytest.mark.parametrize("order", ["discard", "pause", "adopt"])
def test_an_order_of_an_operator_waits_for_the_standby(
    watched: Watched, django_db_blocker: Any, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Told at once, an operator would take a message for discarded that a failover brings back."""
    monkeypatch.setattr(messages, "tell", lambda _changed: None)
    given = watched.params
    place = {"NAME": given["dbname"], "HOST": given["host"], "PORT": given["port"], "USER": given["user"]}
    sql(
        given,
        "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
        " VALUES (%s, %s, 'event_sourced', %s, 'hash:crc32-1', 'crc32-1', '', 'postgres')",
        NUMBER, TYPE, SHARDS,
    )  # fmt: skip
    sql(
        given,
        "INSERT INTO sharding_message (id, type_id, shard, entity, epoch, seq, position, target_type, target, command, args, due)"
        " VALUES ('one', %s, 1, 'alice', NULL, 1, 0, 'shop.Stock', 'book', 'reserve', '', now())",
        NUMBER,
    )  # fmt: skip
    sql(
        given,
        "INSERT INTO sharding_projection (id, name, version, type_ids, server) VALUES (7, 'shop.Open', 1, '{}', 'x')",
    )

    def work() -> object:
        site = connection.copy("watched")
        site.settings_dict = {**site.settings_dict, **place, "PASSWORD": given["password"]}
        connections["watched"] = site
        with closing(site):
            if order == "discard":
                return [each.id for each in messages.discard(["one"])]
            if order == "adopt":
                journals.adopt(journals.JournalFacts(name="b", weight=1.0, place="7/1"), "root")
                return True
            return projections.order("pause", "shop.Open", 1, "root", is_bounded=True)

    with django_db_blocker.unblock(), override_settings(SHARDING={"DATABASE": "watched"}):
        ordered = watched.secures(work)
        assert watched.ends_with_the_standby(ordered) in (["one"], True)


@pytest.mark.parametrize("name", ["resize", "rescale"])
def test_new_numbers_are_told_once_the_standby_has_them(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A coordinator that was killed in the wait of its commit leaves a row that shows them."""
    monkeypatch.setattr(connectivity, "conninfo", lambda _: watched.params)
    config = TypeConfig(TYPE, "event_sourced", SHARDS, "hash:crc32-1", "crc32-1", "", "postgres")
    numbers = NumberOfWorkers("workers:imports", 3, 3, 1)

    async def types() -> list[TypeConfig]:
        return [config]

    async def workers() -> list[NumberOfWorkers]:
        return [numbers]

    store: Any = SimpleNamespace(types=types, workers=workers)

    async def resize(seconds: float) -> TypeConfig:
        command = sharding_resize.Command()
        await command._ask(store, config, SHARDS)
        return await command._wait(store, TYPE, SHARDS, seconds)

    def work(seconds: float = SECONDS) -> object:
        if name == "resize":
            return asyncio.run(resize(seconds))
        return asyncio.run(sharding_rescale.Command()._wait(store, numbers.type, 3, seconds))

    assert work() in (config, numbers)
    watched.pair.cut()
    with pytest.raises(CommandError, match="standby does not have that within 1 s"):
        work(1.0)
    waiting = watched.begin(work)
    for _ in range(2):
        watched.interrupt(waiting, "pg_cancel_backend")
    assert watched.ends_with_the_standby(waiting) in (config, numbers)


def test_an_archive_goes_on_once_the_standby_knows_what_a_former_run_removed(
    watched: Watched, other: Params, tmp_path: Path
) -> None:
    """Those that come back would be written to a second file, and change beside the first one."""
    two = Two(other, watched.params)
    two.fill()

    def work() -> Moved:
        return archive_entities(two.own, TYPE, None, 86_400.0, tmp_path, "me", bool, two.further)

    assert watched.begin(work).result(SECONDS).files
    again = watched.secures(work)
    assert not watched.ends_with_the_standby(again).files
