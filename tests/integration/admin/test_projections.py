"""Projections on the dashboard: what is shown, to whom, and what an operator does."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from socket import SHUT_RDWR, create_server
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.sites import site
from django.db import connection, connections
from django.test import Client
from django.urls import resolve

from sharding_app import EventSourced, Happened, Projection, applies, event, on
from sharding_app.admin import operator_actions, views
from sharding_app.entities.projections import projections
from sharding_app.entities.registry import registry
from sharding_app.models import Cluster, Decision
from sharding_app.operations import each_journal
from tests.support.answering_nodes import FakeNodes, HandClock, collector
from tests.support.cluster_rows import Person, add_projection

BASE = "/admin/sharding/cluster/"
ONE = "name=shop.Open&version=1"
ALICE = f"{ONE}&type=shop.Cart&entity=alice"


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch, rows: None) -> None:
    add_projection()
    found = collector(FakeNodes(), HandClock())
    monkeypatch.setattr(views, "collector", found)
    monkeypatch.setattr(operator_actions, "collector", found)


def text(page: Any) -> str:
    """What a reader sees."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.content.decode()))


def value(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        row = cursor.fetchone()
    return row[0] if row and len(row) == 1 else row


def test_each_version_is_shown_with_its_lag_and_what_waits(root: Client) -> None:
    (row,) = root.get(f"{BASE}projections/").context["projections"]
    assert [row[each] for each in ("name", "behind", "age", "events", "failing", "parked", "bad")] == [
        "shop.Open", "3", "10 min", "1,234", "1", "1", True,
    ]  # fmt: skip
    page = root.get(f"{BASE}projections/one/?{ONE}")
    assert [each["slices"] for each in page.context["projection_parts"]] == ["0-63", "64-127"]
    assert [(each["entity"], each["number"]) for each in page.context["held"]] == [("alice", 4), ("bob", 1)]


@pytest.mark.parametrize(
    "query", ["", "?name=shop.Open&version=2", "?name=x&version=%D9%A1", "?name=%00&version=1"]
)
def test_a_projection_that_is_not_there_is_said_to_be_gone(root: Client, query: str) -> None:
    assert "No node has run a projection of this name" in text(root.get(f"{BASE}projections/one/{query}"))


class Silent:
    """A server that takes connections and says nothing, until it has had enough of them."""

    def __init__(self) -> None:
        self.socket = create_server(("127.0.0.1", 0))
        self.taken = 0
        self.gave_up = threading.Event()
        self.thread = threading.Thread(target=self._take, daemon=True)
        self.thread.start()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                found, _ = self.socket.accept()
                with found:
                    self.taken += 1
                    if not self.gave_up.wait(20):
                        self.gave_up.set()


def test_a_journal_that_says_nothing_is_not_waited_for_over_and_over(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Silent()
    place = {"HOST": "127.0.0.1", "PORT": str(server.socket.getsockname()[1])}
    monkeypatch.setitem(connections.settings, "silent", {**connections.settings["default"], **place})
    silent = connections["silent"]

    def connect() -> None:
        """Connect, to a database that Django's test case does not know of."""
        with silent.wrap_database_errors:
            silent.connect()

    monkeypatch.setattr(silent, "ensure_connection", connect)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_position (projection_id, journal, first_slice, last_slice, position)"
            " VALUES (7, 'silent', 0, 127, '1:1:')"
        )
    try:
        for _look in range(2):
            page = root.get(f"{BASE}projections/one/?{ONE}")
            assert "The journal &#x27;silent&#x27; cannot be reached" in text(page)
        assert not server.gave_up.is_set()
        assert server.taken == 1, "the second page knows it"
    finally:
        server.gave_up.set()
        server.socket.shutdown(SHUT_RDWR)
        server.thread.join()
        server.socket.close()
        each_journal._failed.clear()
        connections["silent"].close()


def test_texts_of_errors_need_a_permission(person: Person) -> None:
    address = f"{BASE}projections/one/?{ONE}"
    assert "the shelf" not in text(person("view_cluster").get(address))
    assert "ValueError" in text(person("view_cluster").get(address))
    assert "the shelf is empty" in text(person("view_cluster", "view_payload").get(address))


def orders(page: Any) -> set[str]:
    return set(re.findall(r"steer/projection-(\w+)/", page.content.decode()))


def test_orders_need_their_permission(person: Person) -> None:
    page = f"{BASE}projections/one/?{ONE}"
    stranger = person("view_cluster", "view_payload", "retry_message", "discard_message")
    assert orders(stranger.get(page)) == set()
    for order in ("pause", "resume", "reset", "retry", "skip"):
        assert stranger.post(f"{BASE}steer/projection-{order}/?{ALICE}&number=4").status_code == 403
    assert not LogEntry.objects.exists()
    # The code of these tests has no such projection, so a reset is not offered.
    assert orders(person("view_cluster", "steer_projection").get(page)) == {"pause", "retry", "skip"}


def confirm(browser: Client, address: str) -> str:
    """Read the plan, send its form, and return the messages of the page after it."""
    page = browser.get(f"{BASE}steer/{address}")
    assert page.status_code == 200, text(page)
    answer = browser.post(page.wsgi_request.path, dict(page.context["plan"].fields))
    return text(browser.get(answer["Location"]))


@pytest.mark.parametrize(
    ("address", "look", "before", "after", "noted"),
    [
        ("projection-pause/?" + ONE, "SELECT paused FROM sharding_projection", False, True, "pause"),
        (
            "projection-retry/?" + ALICE,
            "SELECT next, parked FROM sharding_held WHERE entity = 'alice'", (4, True), (4, False), "retry",
        ),
        (
            f"projection-skip/?{ALICE}&number=4",
            "SELECT next, parked FROM sharding_held WHERE entity = 'alice'", (4, True), (5, False), "skip",
        ),
    ],
)  # fmt: skip
def test_an_order_changes_the_rows_and_is_kept(
    root: Client, address: str, look: str, before: object, after: object, noted: str
) -> None:
    assert value(look) == before
    assert ": done" in confirm(root, address)
    assert value(look) == after
    (line,) = Decision.objects.filter(action=f"projection_{noted}")
    assert (line.subject, line.detail.endswith("by root")) == ("shop.Open:1", True)
    assert "alice" not in line.detail
    assert LogEntry.objects.get().change_message.endswith(": done")


@pytest.fixture
def declared() -> Iterator[None]:
    """The code has it, without a way to clear its rows."""
    with registry.isolated(), projections.isolated():

        @event(name="shown.Added")
        class Added: ...

        class Cart(EventSourced, name="shown.Cart"):
            @applies(Added)
            def on_added(self, happened: Added) -> None:
                """Keep nothing."""

        class Open(Projection, name="shop.Open"):
            source = Cart

            @on(Added)
            def added(self, happened: Happened[Added]) -> None:
                """Write nothing."""

        yield


@pytest.mark.usefixtures("declared")
def test_a_reset_that_cannot_be_is_refused_in_words(root: Client) -> None:
    assert "needs a method clear()" in confirm(root, "projection-reset/?" + ONE)
    assert value("SELECT count(*) FROM sharding_position") == 2


@pytest.mark.usefixtures("declared")
def test_a_reset_whose_clear_raises_has_an_outcome(root: Client) -> None:
    """The text of the error may hold contents, its class does not."""

    def clear(*_: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM sharding_held")
        raise KeyError("sesame")

    (declared,) = [each for each in projections.all().values() if each.name == "shop.Open:1"]
    kind: Any = declared.cls
    kind.clear = clear
    said = confirm(root, "projection-reset/?" + ONE)
    assert "nothing is changed: its method clear() raised KeyError." in said
    assert value("SELECT count(*) FROM sharding_held") == 2
    kept = LogEntry.objects.get().change_message
    assert kept.endswith("its method clear() raised KeyError.")
    assert "sesame" not in kept


def test_an_action_is_bound_to_no_transaction_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ATOMIC_REQUESTS` would take back what was noted before, and join commits that are two. The
    history, journals and rows of projections may lie in other databases than the cluster's.
    """
    for action in ("projection-reset", "drain"):
        view: Any = resolve(f"{BASE}steer/{action}/").func
        assert view._non_atomic_requests == {"default"}
    monkeypatch.setitem(connections.settings, "two", {**connections.settings["default"]})
    admin: Any = site.get_model_admin(Cluster)
    (steer,) = [each for each in admin.get_urls() if each.name == "sharding_cluster_steer"]
    assert steer.callback._non_atomic_requests == {"default", "two"}


def test_a_paused_one_is_resumed(root: Client) -> None:
    confirm(root, "projection-pause/?" + ONE)
    assert root.get(f"{BASE}steer/projection-pause/?{ONE}").status_code == 409
    assert ": done" in confirm(root, "projection-resume/?" + ONE)
    assert value("SELECT paused FROM sharding_projection") is False


def test_an_entity_that_has_gone_on_is_left_alone(root: Client) -> None:
    said = confirm(root, f"projection-skip/?{ALICE}&number=3")
    assert "nothing is changed: it does not wait there any more" in said
    assert value("SELECT next FROM sharding_held WHERE entity = 'alice'") == 4
    assert value("SELECT count(*) FROM sharding_decision WHERE action LIKE 'projection%'") == 0


@pytest.mark.parametrize(
    "address",
    ["projection-pause/", "projection-pause/?name=shop.Open&version=x", "projection-pause/?name=%00&version=1",
     "projection-resume/?" + ONE, "projection-reset/?" + ONE, "projection-retry/?" + ONE,
     f"projection-retry/?{ONE}&type=shop.Cart&entity=%00", f"projection-skip/?{ALICE}",
     f"projection-skip/?{ALICE}&number=9999999999999999999"],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(root: Client, address: str) -> None:
    assert root.get(f"{BASE}steer/{address}").status_code == 409
    assert root.post(f"{BASE}steer/{address}").status_code == 409
