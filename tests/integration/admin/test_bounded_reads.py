"""No read for a page takes longer than a few seconds: the server itself ends it, and the page says
so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection
from django.test import Client

from sharding_app.adapters.django import database as db
from sharding_app.adapters.django.database import ReadTooLong, bounded_reads, steady_reads
from sharding_app.admin import operator_actions, views
from sharding_app.embedded import Servers
from sharding_app.http import metrics
from tests.support.answering_nodes import FakeNodes, HandClock, collector
from tests.support.cluster_rows import CART


def setting() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return str(cursor.fetchone()[0])


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db, "READ_SECONDS", 0.2)


def sleep(seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [seconds])


@pytest.mark.django_db(transaction=True)
def test_the_server_ends_a_read_that_takes_too_long_and_forgets_the_limit() -> None:
    with pytest.raises(ReadTooLong, match=r"did not finish a read for this page in 0\.2 s"), bounded_reads():
        sleep(60)
    with bounded_reads():
        assert setting() == "200ms"
    assert setting() == "0"


@pytest.mark.django_db
def test_the_limit_ends_with_its_block_inside_a_transaction_too() -> None:
    with bounded_reads():
        with bounded_reads():
            assert setting() == "200ms"
        assert setting() == "200ms"
    assert setting() == "0"
    with pytest.raises(ReadTooLong), bounded_reads():
        sleep(60)
    assert setting() == "0"


@pytest.mark.django_db
def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(OperationalError) as caught, bounded_reads():
        raise OperationalError("the connection is gone")
    assert not isinstance(caught.value, ReadTooLong)


@pytest.fixture
def browser(db: None, monkeypatch: pytest.MonkeyPatch, django_user_model: Any) -> Client:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " VALUES (%s, 'shop.Cart', 'event_sourced', 10, 'hash:crc32-1', 'crc32-1', '', 'postgres')",
            [CART],
        )
    for module in (views, operator_actions):
        monkeypatch.setattr(module, "collector", collector(FakeNodes(), HandClock()))
    client = Client()
    client.force_login(django_user_model.objects.create_superuser("root", password="x"))
    return client


@pytest.fixture
def locked(request: pytest.FixtureRequest, servers: Servers, browser: Client) -> Iterator[None]:
    """Make every read of one table wait, as a huge one does."""
    settings = connection.settings_dict
    url = servers.database_url.rpartition("/")[0] + f"/{settings['NAME']}"
    with psycopg.connect(url) as other:
        other.execute(f"LOCK TABLE {request.param} IN ACCESS EXCLUSIVE MODE")
        yield
        other.rollback()


@pytest.mark.parametrize(
    ("locked", "address"),
    [
        ("sharding_event", "event/"),
        ("sharding_event", "event/%5B1,%22alice%22,1%5D/change/"),
        ("sharding_snapshot", "snapshot/"),
        ("sharding_decision", "decision/?o=3"),
        ("sharding_event", f"cluster/types/{CART}/entity/?id=alice"),
        ("sharding_event", f"cluster/steer/passivate/?type={CART}&entity=alice"),
        ("sharding_decision", "cluster/timeline/"),
        ("sharding_decision", "cluster/live/?page=timeline/"),
        ("sharding_node", "cluster/"),
        ("sharding_message", "cluster/messages/"),
    ],
    indirect=["locked"],
)
def test_a_page_whose_reads_take_too_long_says_so(browser: Client, locked: None, address: str) -> None:
    page = browser.get(f"/admin/sharding/{address}")
    assert page.status_code == 503
    assert "PostgreSQL did not finish a read for this page in 0.2 s" in page.content.decode()


@pytest.mark.parametrize("locked", ["sharding_node"], indirect=True)
def test_the_metrics_are_told_without_the_database(
    browser: Client, locked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_of_calls", lambda: metrics.own_families(None))
    assert "sharding_database_up 0" in browser.get("/sharding/metrics").content.decode()


@pytest.mark.django_db
def test_a_read_from_which_a_policy_hides_rows_fails() -> None:
    def security() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW row_security")
            return str(cursor.fetchone()[0])

    with bounded_reads():
        assert security() == "off"
        with bounded_reads(has_other_rows=True):
            assert security() == "off", "a reader around it decided"
        assert security() == "off"
    assert security() == "on", "the project's own transaction goes on as it was"
    with bounded_reads(has_other_rows=True):
        assert security() == "on"
    with steady_reads("default"):
        assert security() == "off"
