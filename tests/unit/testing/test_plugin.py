"""The plugin in a project of its own: refs lead to a cluster in memory, new for each test, and
never to a real journal.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.slack import SLACK

ROOT = Path(__file__).resolve().parents[3]

SETTINGS = """
import sqlite3, warnings

class Closed(sqlite3.Connection):
    # Since Python 3.13 a connection warns when it is dropped without close(); this one does so on each Python.
    closed = False

    def close(self):
        self.closed = True
        super().close()

    def __del__(self):
        if not self.closed:
            warnings.warn("a connection was not closed", ResourceWarning)

SECRET_KEY = "x"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "sharding_app", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "real.sqlite3", "OPTIONS": {"factory": Closed}}}
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SILENCED_SYSTEM_CHECKS = ["sharding.E002"]
USE_TZ = True
"""

INI = """
[pytest]
asyncio_default_fixture_loop_scope = function
addopts = -q -p no:valkey -p sharding_app.testing.plugin
filterwarnings = error
"""

ENTITIES = """
from django.contrib.auth.models import Group
from sharding_app import EventSourced, ShardingSettings, applies, command, event, query

@event
class Counted:
    by: int

class Counter(EventSourced):
    settings = ShardingSettings(role="backend")
    count: int = 0

    @command
    def add(self, by: int = 1) -> int:
        self.persist(Counted(by))
        return self.count

    @command
    def add_later(self, seconds: float) -> None:
        self.context.start_timer("later", seconds, Counter.add, 1)

    @command
    def add_with_group(self, name: str, fails: bool = False, breaks: bool = False) -> int:
        def also() -> None:
            Group.objects.create(name=name)
            if fails:
                raise LookupError("no")
            if breaks:
                from django.db import transaction
                transaction.set_rollback(True)
        self.persist(Counted(1), in_transaction=also)
        return self.count

    @command
    async def groups(self) -> int:
        return await Group.objects.acount()

    @command(thread=True)
    def groups_in_a_thread(self) -> int:
        return Group.objects.count()

    @command
    def groups_on_the_loop(self) -> int:
        return Group.objects.count()

    @command(thread=True)
    def ask_other(self, other: str) -> int:
        return Counter.ref(other).sync.add()

    @query
    def show(self) -> int:
        return self.count

    @applies(Counted)
    def on_counted(self, happened: Counted) -> None:
        self.count += happened.by
"""

TESTS = """
import asyncio
import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import TestCase, TransactionTestCase
from sharding_app import EntityFailed, NotSerializable, WrongContext, wiring
from shop.entities import Counted, Counter

@pytest.mark.parametrize("again", [1, 2])
def test_each_test_has_a_new_cluster(again):
    assert Counter.ref("a").sync.add() == 1

def test_in_an_async_test():
    async def main():
        return await Counter.ref("a").add(2), await Counter.ref("a").exists()
    assert asyncio.run(main()) == (2, True)

def test_the_cluster_is_at_hand(sharding_cluster):
    assert Counter.ref("a").sync.add(3) == 3
    assert sharding_cluster.events(Counter, "a") == [Counted(3)]
    assert [name for name, _, _ in sharding_cluster.events_raw(Counter, "a")] == ["Counted"]
    sharding_cluster.append(Counter, "b", Counted(40))
    assert Counter.ref("b").sync.show() == 40
    second = sharding_cluster.add_node()
    sharding_cluster.cut_off("node1")
    sharding_cluster.kill_node("node1")
    assert Counter.ref("a").sync.add() == 4
    assert sharding_cluster.home_of(Counter, "a") == second

def test_the_next_write_fails(sharding_cluster):
    Counter.ref("a").sync.add()
    sharding_cluster.fail_next_write(Counter, "a", reason="disk on fire")
    with pytest.raises(NotSerializable, match="disk on fire"):
        Counter.ref("a").sync.add()
    assert Counter.ref("a").sync.add() == 2

def test_time_moves_on(sharding_cluster, sharding_clock):
    assert Counter.ref("a").sync.show() == 0
    sharding_clock.advance(100)
    assert sharding_cluster.is_in_memory(Counter, "a")
    sharding_clock.advance(60)
    assert not sharding_cluster.is_in_memory(Counter, "a"), "nothing was sent to it for two minutes"

def test_a_timer(sharding_clock):
    Counter.ref("a").sync.add_later(60)
    sharding_clock.advance(61)
    assert Counter.ref("a").sync.show() == 1

def test_a_handler_in_a_thread_may_ask():
    assert Counter.ref("a").sync.ask_other("b") == 1

@pytest.mark.django_db
def test_in_transaction_writes_into_the_tests_transaction():
    assert Counter.ref("a").sync.add_with_group("g") == 1
    assert Group.objects.filter(name="g").exists()
    with pytest.raises(EntityFailed, match="LookupError: no"):
        Counter.ref("a").sync.add_with_group("h", fails=True)
    with pytest.raises(EntityFailed, match="has ended its transaction"):
        Counter.ref("a").sync.add_with_group("h", breaks=True)
    assert not Group.objects.filter(name="h").exists()
    assert Counter.ref("a").sync.show() == 1

@pytest.mark.django_db
def test_and_rolls_back_with_it():
    assert not Group.objects.exists()

@pytest.mark.django_db
def test_the_async_orm_sees_what_the_test_wrote():
    Group.objects.create(name="mine")
    assert Counter.ref("a").sync.groups() == 1

@pytest.mark.django_db
def test_a_handler_in_a_thread_sees_what_the_test_wrote():
    Group.objects.create(name="mine")
    assert [Counter.ref(id).sync.groups_in_a_thread() for id in "abc"] == [1, 1, 1]
    assert Group.objects.count() == 1

@pytest.mark.django_db(transaction=True)
def test_a_handler_in_a_thread_leaves_no_connection_behind():
    Group.objects.create(name="mine")
    assert Counter.ref("a").sync.groups_in_a_thread() == 1

@pytest.mark.django_db
def test_the_sync_orm_on_the_loop_is_told_the_two_ways_out():
    with pytest.raises(EntityFailed, match="async ORM.*@command.thread=True") as caught:
        Counter.ref("a").sync.groups_on_the_loop()
    assert "async def" in str(caught.value)

@pytest.mark.django_db(transaction=True)
def test_tell_waits_for_the_commit():
    with transaction.atomic():
        Counter.ref("a").add.tell()
    assert Counter.ref("a").sync.show() == 1
    with pytest.raises(LookupError), transaction.atomic():
        Counter.ref("a").add.tell()
        raise LookupError
    assert Counter.ref("a").sync.show() == 1

@pytest.mark.sharding_real
def test_real_without_transaction_is_refused():
    raise AssertionError("it ran")

class Cases(TestCase):
    def test_one(self):
        assert Counter.ref("a").sync.add() == 1

    def test_two(self):
        assert Counter.ref("a").sync.add() == 1

class TransactionCases(TransactionTestCase):
    def test_one(self):
        assert Counter.ref("a").sync.add_with_group("t") == 1
        assert Group.objects.count() == 1

    def test_two(self):
        assert Counter.ref("a").sync.add() == 1
        assert Group.objects.count() == 0
"""

LEFT = """
import threading, time

from django.contrib.auth.models import Group
from django.test import TestCase
from sharding_app import Entity, command

begun = threading.Event()
ended = threading.Event()

class Slow(Entity, name="left.Slow"):
    @command(thread=True)
    def write(self) -> None:
        begun.set()
        ended.wait(60)
        Group.objects.create(name="late")

class Cases(TestCase):
    def test_1_leaves_a_handler_at_work(self):
        Slow.ref("a").write.tell()
        assert begun.wait(60)
        threading.Timer(0.3, ended.set).start()

    def test_2_is_alone(self):
        Slow.ref("b")
        assert ended.is_set(), "it was waited for"
        assert Group.objects.count() == 0
"""

GUARD = """
import asyncio

import pytest
from sharding_app import WrongContext, wiring

def test_no_real_connection_without_a_test_database():
    with pytest.raises(WrongContext, match="a test would use the real journal in database 'default'"):
        asyncio.run(wiring.client_process())
    with pytest.raises(WrongContext, match="a test would use the real journal"):
        wiring.node_ports(wiring.get_settings(), None, None)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").touch()
    (folder / "shop" / "entities.py").write_text(ENTITIES)
    (folder / "shop_settings.py").write_text(SETTINGS)
    (folder / "pytest.ini").write_text(INI)
    (folder / "test_shop.py").write_text(TESTS)
    (folder / "test_guard.py").write_text(GUARD)
    (folder / "test_left.py").write_text(LEFT)
    return folder


def run(site: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    environment |= {"DJANGO_SETTINGS_MODULE": "shop_settings", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=site,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120 * SLACK,
    )


REFUSED = "@pytest.mark.sharding_real needs @pytest.mark.django_db(transaction=True)"


@pytest.mark.parametrize("extra", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_under_pytest_django(site: Path, extra: tuple[str, ...]) -> None:
    done = run(site, "pytest", *extra, "test_shop.py")
    assert REFUSED in done.stdout, done.stdout + done.stderr
    assert "19 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert not (site / "real.sqlite3").exists(), "a test has touched the real database"


def test_no_test_reaches_a_real_journal(site: Path) -> None:
    done = run(site, "pytest", "test_guard.py")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("runner", [("django", "test", "test_left"), ("pytest", "test_left.py")])
def test_a_handler_that_the_first_test_leaves_writes_into_no_other(
    site: Path, runner: tuple[str, ...]
) -> None:
    done = run(site, *runner)
    assert done.returncode == 0, done.stdout + done.stderr


def test_under_djangos_runner(site: Path) -> None:
    done = run(site, "django", "test", "test_shop")
    assert "Ran 4 tests" in done.stderr, done.stdout + done.stderr
    assert "\nOK\n" in done.stderr, done.stderr
