"""What all tests share: the servers (started when the first test needs them) and the environment
for child processes.
"""

from __future__ import annotations

import gc
import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from hypothesis import HealthCheck
from hypothesis import settings as examples

from project.settings.urls import database, redis_host
from sharding_app import embedded
from sharding_app.embedded import DataFolder, OwnPostgres, OwnRedis, Servers, ensure_servers
from tests.groups import group, place
from tests.support.forks import real_starts  # noqa: F401 - a fixture
from tests.support.live import live_cluster, live_database, live_servers, live_tables  # noqa: F401 - fixtures
from tests.support.scratch import checkpoint

# A shell that runs this in the background has it ignore Ctrl-C, and so would every program that is
# started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
# What was asked of this run is not asked of those that some tests start.
os.environ.pop("PYTEST_ADDOPTS", None)

# An example that takes 0.2 s is a defect to hypothesis, and an ordinary one on a busy machine.
examples.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
examples.load_profile("untimed")

# What is drawn while tests are collected has to be the same in all workers: they inherit this.
os.environ.setdefault("ACCEPTANCE_DRAW", str(random.randrange(1_000_000)))

ChildEnvironment = Callable[[], dict[str, str]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-golden", action="store_true", help="write the scripts of the protocol anew (tests/simulation/scripts)"
    )  # fmt: skip


def pytest_configure() -> None:
    """Have servers of the tests' own, unless others are given, and be PostgreSQL's superuser there:
    some tests make roles and change the server's settings. These servers do not wait for the disk:
    tests make and empty thousands of tables. And hash passwords at once: a third of a second for
    each user of each test was a quarter of all that the tests cost.
    """
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    if not os.environ.get("DATABASE_URL"):
        settings.DATA_FOLDER = settings.DATA_FOLDER / "tests"
        settings.DATABASES["default"].update(embedded.database(settings.DATA_FOLDER, durable=False))
        access = DataFolder(settings.DATA_FOLDER).access()
        settings.DATABASES["default"].update(database(access.admin_url))
        if not os.environ.get("REDIS_URL"):
            for layer in settings.CHANNEL_LAYERS.values():
                layer["CONFIG"]["hosts"] = [redis_host(access.redis_url)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place(item.nodeid))


def pytest_collection_finish() -> None:
    """Take thousands of tests and all modules, which stay, out of what each collection of garbage
    looks through.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where tests run in several workers, keep those of a group together.

    The groups of `--dist loadgroup` would say the same, but xdist 3.8 makes none with pytest 9.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    config.option.loadscopereorder = False  # the order is that of the collection
    return Grouped(config, log)


@pytest.fixture(autouse=True)
def counts_again() -> None:
    """Count messages in each test, though one before it has locked their table for too long."""
    from sharding_app.operations import snapshot

    snapshot._left_out_until.clear()


@pytest.fixture(scope="session")
def servers() -> Servers:
    """Return running servers: those of the environment, or the data folder's own."""
    found = ensure_servers(settings.DATA_FOLDER)
    if found.folder is not None and not os.environ.get("DATABASE_URL"):
        found = replace(found, database_url=found.folder.access().admin_url)
    if not found.redis_url:
        pytest.exit("The tests need REDIS_URL beside DATABASE_URL.", 1)
    wanted = settings.DATABASES["default"]
    given = database(found.database_url)
    (host,) = settings.CHANNEL_LAYERS["default"]["CONFIG"]["hosts"]
    if given["PORT"] != wanted["PORT"] or host != redis_host(found.redis_url):
        pytest.exit("A port of the embedded servers was taken and has been changed: run the tests again.", 1)
    return found


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    servers: Servers, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """Have a server before the test database is made."""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, servers: Servers) -> Iterator[None]:
    """Drop the test databases quickly."""
    yield
    with psycopg.connect(servers.database_url, autocommit=True) as admin:
        checkpoint(admin)


@pytest.fixture
def child_environment(servers: Servers) -> ChildEnvironment:
    """Return what makes a child process (`manage.py …`) use this test's database and the same
    Redis.
    """

    def environment() -> dict[str, str]:
        now = connection.settings_dict
        user = f"{quote(now['USER'], safe='')}:{quote(now['PASSWORD'], safe='')}"
        url = f"postgresql://{user}@{now['HOST']}:{now['PORT']}/{now['NAME']}"
        return {**os.environ, "DATABASE_URL": url, "REDIS_URL": servers.redis_url}

    return environment


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[OwnPostgres]:
    """Return a running PostgreSQL that this test may stop, kill and start again."""
    with OwnPostgres(tmp_path) as server:
        yield server


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    """Return a running Redis that this test may stop, kill and start again."""
    with OwnRedis(tmp_path) as server:
        yield server
