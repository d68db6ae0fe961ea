"""The default mode beside a real test database: what handlers do there belongs to the test, and is
closed with it.
"""

import asyncio
import gc
import threading

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection

from sharding_app import Entity, command
from sharding_app.entities.registry import registry
from sharding_app.testing import modes
from tests.integration.runtime.clubs import Club
from tests.support.live import until
from tests.support.slack import SLACK


def use_every_way() -> None:
    Group.objects.create(name="one")
    assert Club.ref("a").sync.rows() == 1
    assert Club.ref("a").sync.rows_in_a_thread() == 1
    assert Club.ref("a").sync.join_with_row("two") == 1
    assert Group.objects.count() == 2


def connections_beside_this() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # a transaction goes on seeing its first look
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        (found,) = cursor.fetchone()
    return int(found)


@pytest.mark.django_db
def test_inside_a_transaction_all_of_it_is_the_tests_own() -> None:
    use_every_way()
    until(lambda: connections_beside_this() == 0, 20, "no other connection is left")


@pytest.mark.django_db(transaction=True)
def test_with_transactions_nothing_stays_open() -> None:
    use_every_way()
    modes.reset()
    gc.collect()
    until(lambda: connections_beside_this() == 0, 20, "no other connection is left")


@pytest.mark.django_db(transaction=True)
def test_sync_code_of_an_async_process_may_ask_async_handlers() -> None:
    """It holds the one thread that the async ORM of a process has by default."""
    assert asyncio.run(sync_to_async(Club.ref("a").sync.rows)()) == 0


@pytest.mark.django_db
def test_a_handler_that_is_at_work_in_a_thread_ends_before_its_test() -> None:
    begun, goes_on = threading.Event(), threading.Event()
    with registry.isolated():

        class Slow(Entity, name="kit.Slow"):
            @command(thread=True)
            def work(self) -> None:
                begun.set()
                goes_on.wait()
                Group.objects.create(name="late")

        Slow.ref("a").work.tell()
        assert begun.wait(20 * SLACK)
        later = threading.Timer(0.3, goes_on.set)
        later.start()
        modes.reset()
        later.join()
    assert Group.objects.count() == 1
    until(lambda: connections_beside_this() == 0, 20, "no other connection is left")
