"""The dashboard's pages: what they show, to whom, and what they say when something is wrong."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import DatabaseError, OperationalError, connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from sharding_app import __version__
from sharding_app.admin import operator_actions, views
from sharding_app.dashboard import members
from sharding_app.dashboard.pages import charts
from sharding_app.errors import Unavailable
from sharding_app.operations.cache import MAX_AGE_SECONDS, Collector, Look
from sharding_app.operations.trends import TrendCollector
from sharding_app.protocol.coordinator.terms import ERA_BITS, TIMELINE_BITS
from sharding_app.protocol.messages import Entities, EntityState, OperatorReply, OperatorRequest, ReplyCode
from tests.support.answering_nodes import FakeNodes, HandClock, collector
from tests.support.cluster_rows import CART, GONE, SHARDS, Person
from tests.support.trends import FakeTrends

BASE = "/admin/sharding/cluster/"
PAGES = [
    "", "nodes/", "nodes/n-a/", "nodes/n-gone/", "types/", f"types/{CART}/", f"types/{GONE}/", f"types/{CART}/shards/3/",
    f"types/{CART}/entity/", f"types/{CART}/entity/?id=alice", f"types/{CART}/entity/?id=alice&at=3",
    f"types/{GONE}/entity/?id=x", "singletons/", "messages/",
    "messages/?state=parked", "messages/?entity=alice", "messages/one/?id=x", "timeline/", "trouble/", "database/", "load/",
    "charts/", "charts/?range=24h&node=n-a",
    "projections/", "projections/one/?name=shop.Open&version=1", "history/",
]  # fmt: skip


LIMITED = re.compile(
    r"count\(\*\)(?: AS many)? FROM (?:\(\s*SELECT FROM|waiting|parked)"
    r"|count\(\*\) AS rows, min\(new\.at\)|count\(\*\) FILTER \(WHERE h\."
    r"|count\(\*\), max\(s\.epoch\)\s+FROM sharding_shard"
    r"|count\(\*\) AS events, max\(e\.shard\) AS shard\s+FROM sharding_event e\s+WHERE e\.at >="
    r"|sum\(p\.events\)::bigint, count\(\*\)\s+FROM placed p"
)
"""Counts of rows that were limited before, of shards, and of the last minutes' events."""


class FakeProcess:
    """Answers questions and requests; keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, OperatorRequest]] = []
        self.outcome: OperatorReply | None = OperatorReply(1, ReplyCode.DONE, "It is done.")
        self.queries = self

    async def entities(self, node: str, wanted: Any) -> Entities:
        return Entities(1, 1, 1, [EntityState("alice", 5, "idle", 0, 3.0)])

    async def operate(self, node: str, request: OperatorRequest) -> OperatorReply | None:
        self.requests.append((node, request))
        return self.outcome


@pytest.fixture
def nodes() -> FakeNodes:
    return FakeNodes()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> FakeProcess:
    found = FakeProcess()

    def ask(job: Any, *_: Any, **__: Any) -> Any:
        coroutine = job(found)
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("it waits")

    monkeypatch.setattr(members, "ask_cluster", ask)
    monkeypatch.setattr(operator_actions, "ask_cluster", ask)
    return found


@pytest.fixture(autouse=True)
def looks(
    monkeypatch: pytest.MonkeyPatch, rows: None, nodes: FakeNodes, clock: HandClock, process: FakeProcess
) -> Collector:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(lock_key_1), pg_advisory_lock(lock_key_2) FROM sharding_node")
    found = collector(nodes, clock)
    monkeypatch.setattr(views, "collector", found)
    monkeypatch.setattr(operator_actions, "collector", found)
    monkeypatch.setattr(charts, "trends", TrendCollector(FakeTrends(), clock))
    return found


@pytest.fixture(autouse=True)
def unlocked(db: None) -> Any:
    yield
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock_all()")


def text(page: Any) -> str:
    """What a reader sees."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.content.decode()))


# -- Who may see it --------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [*PAGES, "live/?page=", "steer/rebalance/"])
def test_nothing_is_shown_to_those_without_permission(person: Person, address: str) -> None:
    assert Client().get(BASE + address).status_code == 302
    assert person(staff=False).get(BASE + address).status_code == 302
    assert person("view_event").get(BASE + address).status_code == 403


@pytest.mark.parametrize("address", PAGES)
def test_each_page_is_shown_to_those_who_may(person: Person, address: str) -> None:
    page = person("view_cluster").get(BASE + address)
    assert page.status_code == 200
    assert "steer/" not in page.content.decode(), "what one may not do is not offered"


def test_what_entities_hold_needs_a_permission_of_its_own(person: Person) -> None:
    address = f"{BASE}types/{CART}/entity/?id=alice"
    hidden = person("view_cluster").get(address).content.decode()
    assert "book" not in hidden
    assert "You have no permission to see" in hidden
    shown = person("view_cluster", "view_payload").get(address).content.decode()
    assert "&quot;book&quot;: 15" in shown


def test_the_dashboard_stands_in_the_index_of_its_app(person: Person) -> None:
    page = person("view_cluster").get("/admin/")
    assert f'href="{BASE}"' in page.content.decode()
    assert "Dashboard" in text(page)


# -- What it shows ---------------------------------------------------------------------------------


def test_the_overview_of_a_healthy_cluster(root: Client) -> None:
    page = text(root.get(BASE))
    assert "The cluster is healthy." in page
    assert "Nodes up 3 / 3" in page
    assert "Commands / s 300" in page
    assert "Coordinator node-a" in page
    assert f"sharding_app {__version__}." in page


def test_a_node_that_does_not_answer_is_said_to_be_late(root: Client, nodes: FakeNodes) -> None:
    nodes.silent.add("n-b")
    page = text(root.get(BASE))
    assert "1 problem" in page
    assert "Node node-b did not answer" in page
    assert "up, answers late" in page


def test_without_a_channel_layer_the_rows_are_still_shown(root: Client, nodes: FakeNodes) -> None:
    nodes.trouble = "this process is not connected to the cluster: Redis is away"
    page = root.get(BASE)
    assert page.status_code == 200
    assert "This process cannot ask the nodes" in text(page)
    assert "node-c" in text(page)
    assert root.get(f"{BASE}types/{CART}/").status_code == 200


def test_without_a_database_the_page_says_so(root: Client, looks: Collector, clock: HandClock) -> None:
    def away() -> Any:
        raise DatabaseError("connection refused")

    looks._read = away
    page = root.get(BASE)
    assert page.status_code == 503
    assert "PostgreSQL" in text(page)
    news = root.get(f"{BASE}live/?page=")
    assert news.status_code == 503
    assert "PostgreSQL" in news.json()["trouble"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "address", ["timeline/", "live/?page=timeline/", "steer/passivate/?type=1&entity=alice"]
)
def test_a_page_says_so_if_the_database_goes_away_behind_its_look(
    root: Client, looks: Collector, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """A look is shared for a moment, and pages read more than that."""
    look = looks.look()

    def looked() -> Look:
        with connection.cursor() as cursor, suppress(OperationalError):
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return look

    monkeypatch.setattr(looks, "look", looked)
    root.raise_request_exception = False
    page = root.get(BASE + address)
    connection.close()
    assert page.status_code == 503
    assert "PostgreSQL at" in page.content.decode()


def test_without_any_node_it_says_what_to_start(root: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM sharding_node")
    page = text(root.get(BASE))
    assert "manage.py sharding_node" in page
    assert "10 without a home" in page
    assert root.get(f"{BASE}types/{CART}/").status_code == 200


def test_the_map_shows_every_shard_with_its_home_and_its_size(root: Client) -> None:
    page = root.get(f"{BASE}types/{CART}/").content.decode()
    drawing = page.partition('<svg class="sh-map"')[2].partition("</svg>")[0]
    assert drawing.count("data-shard=") == SHARDS
    assert 'c0 l0 s-home" data-shard="0"' in drawing
    assert 'c0 l5 s-home" data-shard="9"' in drawing
    assert page.partition("data-map-table")[2].count('<tr data-shard="') == SHARDS
    assert "10 at home. node-a 4, node-b 3, node-c 3" in page


def test_a_shard_that_is_closed_for_a_move_says_so(root: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE sharding_shard SET home = NULL, step = 'stopped' WHERE type_id = %s AND shard IN (3, 4)",
            [CART],
        )
        cursor.execute(
            "INSERT INTO sharding_move (type_id, shard, source, target, step, closed_until)"
            " VALUES (%s, 3, '', 'two', 'closed', now()), (%s, 4, '', 'two', 'copying', NULL)",
            [CART, CART],
        )
    assert "State closed for a move to two" in text(root.get(f"{BASE}types/{CART}/shards/3/"))
    assert "State stopped" in text(root.get(f"{BASE}types/{CART}/shards/4/"))
    page = text(root.get(f"{BASE}types/{CART}/"))
    assert "1 closed for a move to two" in page
    assert "1 stopped" in page


def test_a_large_map_comes_in_parts(root: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_type SET number_of_shards = 5000 WHERE id = %s", [CART])
    page = root.get(f"{BASE}types/{CART}/?from=4000").content.decode()
    drawing = page.partition('<svg class="sh-map"')[2].partition("</svg>")[0]
    assert drawing.count("data-shard=") == 1000
    assert 'data-shard="4999"' in drawing


def test_a_type_that_is_being_resized_shows_how_far_that_is(root: Client) -> None:
    """The first 4 of 10 groups have two shards each, the others one: there are 14."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE sharding_type SET shards_wanted = 20, groups_resized = 4, shards_revision = 3 WHERE id = %s",
            [CART],
        )
    page = root.get(f"{BASE}types/{CART}/")
    assert page.status_code == 200
    assert "Shards 14 Resize 10 → 20 shards, 4 of 10 groups are done" in text(page)
    assert "Shards placed 10 / 14" in text(page)
    shown = {
        shard: root.get(f"{BASE}types/{CART}/shards/{shard}/").status_code for shard in (3, 9, 13, 14, 19)
    }
    assert shown == {3: 200, 9: 200, 13: 200, 14: 404, 19: 404}, "only shards that there are now"


def test_an_entity_is_shown_as_it_was_after_any_of_its_events(root: Client) -> None:
    page = root.get(f"{BASE}types/{CART}/entity/?id=alice&at=3")
    assert "State after event 3" in text(page)
    assert "&quot;book&quot;: 6" in page.content.decode()
    newest = root.get(f"{BASE}types/{CART}/entity/?id=alice&at=99999")
    assert "State now, after event 5" in text(newest)
    assert 'max="5" value="5"' in newest.content.decode()


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_numbers_in_addresses_and_pictures_are_plain_in_any_language(root: Client, language: str) -> None:
    """A link to event 1,450 would lead to the newest one, and one to shard 2,345 nowhere."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_type SET number_of_shards = 5000 WHERE id = %s", [CART])
        cursor.execute(
            "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) VALUES (%s, 2345, 1234, 'n-a', 'home')",
            [CART],
        )
        cursor.execute(
            "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
            " SELECT %s, 'long', number, 1, 1, 'ItemAdded', 1, '{}' FROM generate_series(1, 1500) AS number",
            [CART],
        )
        cursor.execute(
            "INSERT INTO sharding_decision (id, action, subject, detail)"
            " SELECT number, 'node_up', 'n-b', 'node-b' FROM generate_series(500000, 500100) AS number"
        )
    addresses = [f"types/{CART}/?from=2000", f"types/{CART}/shards/2345/", "timeline/"]
    addresses += [f"types/{CART}/entity/?id=long&at={at}" for at in (1450, 1500)]
    with override_settings(USE_THOUSAND_SEPARATOR=True, LANGUAGE_CODE=language):
        for address in addresses:
            page = root.get(BASE + address).content.decode()
            live = root.get(f"{BASE}live/", {"page": address}).json()["parts"]
            for html in (page, *live.values()):
                found = re.findall(r' (?:href|value|min|max|data-[a-z]+|viewBox)="([^"]*)"', html)
                assert not [each for each in found if re.search(r"\d[.,\u00a0\u202f]\d{3}\b", each)]
        shown = text(root.get(f"{BASE}types/{CART}/entity/?id=long&at=1450"))
        assert "State after event 1450" in shown
        assert 'before=500001"' in root.get(f"{BASE}timeline/").content.decode()


@pytest.mark.parametrize("aware", [True, False])
def test_all_times_are_by_the_clock_of_the_site(
    root: Client, looks: Collector, clock: HandClock, settings: Any, *, aware: bool
) -> None:
    """The server has failed over a minute ago, so the banner tells a time too."""
    settings.USE_TZ, settings.TIME_ZONE = aware, "Asia/Tokyo"
    at = datetime(2026, 3, 1, 20, 15, 30, tzinfo=UTC)
    began = datetime.now(UTC) - timedelta(minutes=1)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_decision SET at = %s", [at])
        cursor.execute("UPDATE sharding_type SET registered_at = %s", [at])
        term = int(began.timestamp()) << (TIMELINE_BITS + ERA_BITS) | 2
        cursor.execute("UPDATE sharding_coordinator SET term = %s", [term])
    page = root.get(f"{BASE}timeline/").content.decode()
    assert re.findall(r"<title>(\S+) node up", page) == ["05:15:30"]
    assert "05:15:30</time>" in page
    assert "data-socket" not in page or 'data-zone="Asia/Tokyo"' in page
    assert "2026-03-01 20:15 UTC" in text(root.get(f"{BASE}types/{CART}/"))
    assert f"since {began:%Y-%m-%d %H:%M} UTC" in text(root.get(BASE))
    chart = root.get(f"{BASE}charts/").content.decode()
    table = re.findall(r'<time datetime="[^"]*">(\d\d):\d\d</time>', chart)
    axis = re.findall(r'<text class="sh-chart-x"[^>]*>(\d\d):', chart)
    assert set(axis) <= set(table), "the table under a picture is of the same time"


@pytest.mark.parametrize("at", ["-1", "x", "9" * 30, "0", ""])
def test_an_event_number_that_makes_no_sense_breaks_nothing(root: Client, at: str) -> None:
    assert root.get(f"{BASE}types/{CART}/entity/", {"id": "alice", "at": at}).status_code == 200


@pytest.mark.parametrize(
    "entity", ["nobody", "a/b?c#d e", "<script>alert(1)</script>", "x" * 513, "a\x00b", "é" * 300]
)
def test_any_id_may_be_looked_for(root: Client, entity: str) -> None:
    page = root.get(f"{BASE}types/{CART}/entity/", {"id": entity})
    assert page.status_code == 200
    assert "<script>alert" not in page.content.decode()


def test_an_event_that_cannot_be_read_is_named(root: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE sharding_event SET payload = '{\"sku\": 7}' WHERE type_id = %s AND entity = 'alice' AND seq = 4",
            [CART],
        )
    page = root.get(f"{BASE}types/{CART}/entity/?id=alice")
    assert page.status_code == 200
    assert "UnreadableEvent" in text(page)
    assert "&quot;book&quot;: 6" in root.get(f"{BASE}types/{CART}/entity/?id=alice&at=3").content.decode()


def test_a_type_whose_code_is_gone_shows_its_events(root: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) VALUES (%s, 0, 1, 'n-a', 'home')",
            [GONE],
        )
        cursor.execute(
            "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
            " VALUES (%s, 'old', 1, 0, 1, 'Left', 1, '{}')",
            [GONE],
        )
    page = root.get(f"{BASE}types/{GONE}/entity/?id=old")
    assert "is not installed here" in text(page)
    assert "Left" in text(page)


@pytest.mark.parametrize(
    "address", ["types/99/", f"types/{CART}/shards/10/", "types/x/", "nothing/", "steer/dance/"]
)
def test_what_does_not_exist_is_not_found(root: Client, address: str) -> None:
    assert root.get(BASE + address).status_code == 404


def test_a_page_asks_the_database_few_and_short_questions(
    root: Client, looks: Collector, clock: HandClock
) -> None:
    for address in PAGES:
        clock.time += MAX_AGE_SECONDS + 0.1
        with CaptureQueriesContext(connection) as captured:
            root.get(BASE + address)
        ours = [each["sql"] for each in captured if "sharding_" in each["sql"]]
        assert len(ours) <= 20, address
        assert not [sql for sql in ours if "COUNT(*)" in LIMITED.sub("", sql).upper()]
        assert all("LIMIT" in sql for sql in ours if 'FROM "sharding_event"' in sql and '"seq" <=' not in sql)


# -- Live ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES[:-1])
def test_each_page_has_live_parts_that_are_the_pages_own(root: Client, page: str) -> None:
    whole = root.get(BASE + page).content.decode()
    topic = re.search(r'data-topic="([^"]*)"', whole)
    assert topic is not None
    news = root.get(f"{BASE}live/", {"page": topic[1].replace("&amp;", "&")})
    assert news.status_code == 200
    for part in news.json()["parts"]:
        assert f'data-part="{part}"' in whole


def test_new_events_of_an_entity_are_announced_and_its_state_is_left_alone(root: Client) -> None:
    page = root.get(f"{BASE}types/{CART}/entity/?id=alice").content.decode()
    assert 'data-topic="types/1/entity/?id=alice&amp;seen=5"' in page
    assert (
        "newer"
        not in root.get(f"{BASE}live/", {"page": "types/1/entity/?id=alice&seen=5"}).json()["parts"][
            "entity_news"
        ]
    )
    news = root.get(f"{BASE}live/", {"page": "types/1/entity/?id=alice&seen=4"}).json()["parts"][
        "entity_news"
    ]
    assert "up to number 5" in news


def test_a_live_page_that_does_not_exist_is_not_found(root: Client) -> None:
    assert root.get(f"{BASE}live/", {"page": "types/99/"}).status_code == 404


def test_many_who_watch_share_one_look(root: Client, nodes: FakeNodes, clock: HandClock) -> None:
    for _ in range(5):
        root.get(BASE)
    asked = nodes.asked
    clock.time += MAX_AGE_SECONDS + 0.1
    root.get(BASE)
    assert (asked, nodes.asked) == (2, 3), "twice at the beginning, for the rates"


# -- Steering --------------------------------------------------------------------------------------

REQUESTS = {
    "rebalance": ("rebalance_shards", {}, "n-a"),
    "pause": ("rebalance_shards", {}, "n-a"),
    "resume": ("rebalance_shards", {}, "n-a"),
    "move": ("move_shard", {"type": str(CART), "shard": "0", "target": "n-b"}, "n-a"),
    "drain": ("drain_node", {"target": "n-b"}, "n-b"),
    "undrain": ("drain_node", {"target": "n-b"}, "n-b"),
    "shutdown": ("shut_down_node", {"target": "n-b"}, "n-b"),
    "passivate": ("stop_entity", {"type": str(CART), "entity": "alice"}, "n-"),
    "restart": ("stop_entity", {"type": str(CART), "entity": "alice"}, "n-"),
}


@pytest.mark.parametrize("action", REQUESTS)
def test_a_request_is_explained_then_passed_on_and_kept(
    person: Person, process: FakeProcess, action: str
) -> None:
    permission, given, asked = REQUESTS[action]
    client = person("view_cluster", permission)
    page = client.get(f"{BASE}steer/{action}/", given)
    assert page.status_code == 200
    assert "What will happen" in text(page)
    assert not process.requests, "looking does nothing"
    done = client.post(f"{BASE}steer/{action}/", given, follow=True)
    assert done.status_code == 200
    assert "It is done." in text(done)
    ((node, request),) = process.requests
    assert node.startswith(asked)
    assert (request.action, request.by.startswith("user")) == (action, True)
    entry = LogEntry.objects.get()
    assert "It is done." in entry.get_change_message()
    assert "It is done." in text(client.get(f"{BASE}history/"))


def test_a_request_that_ends_in_an_error_has_left_its_intent(
    person: Person, process: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(operator_actions, "ask_cluster", fails)
    permission, given, _ = REQUESTS["drain"]
    client = person("view_cluster", permission)
    client.raise_request_exception = False
    assert client.post(f"{BASE}steer/drain/", given).status_code == 500
    assert "requested, not answered yet" in LogEntry.objects.get().get_change_message()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_kept", [True, False])
def test_an_outcome_is_told_though_the_connection_was_ended_meanwhile(
    root: Client, process: FakeProcess, monkeypatch: pytest.MonkeyPatch, *, is_kept: bool
) -> None:
    def ended(*_: Any, **__: Any) -> OperatorReply:
        with connection.cursor() as cursor, suppress(OperationalError):
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        if not is_kept:
            monkeypatch.setattr(LogEntry, "save", away)
        return OperatorReply(1, ReplyCode.DONE, "It is done.")

    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(operator_actions, "ask_cluster", ended)
    _, given, _ = REQUESTS["drain"]
    root.raise_request_exception = False
    answer = root.post(f"{BASE}steer/drain/", given)
    connection.close()
    assert answer.status_code == 302
    said = text(root.get(answer["Location"]))
    assert "Drain node-b: It is done." in said
    assert ("The admin&#x27;s history lacks this outcome" in said) is not is_kept
    assert LogEntry.objects.get().change_message.endswith("It is done.") is is_kept


@pytest.mark.django_db(transaction=True)
def test_nothing_is_asked_where_the_history_cannot_be_written(root: Client, process: FakeProcess) -> None:
    """On a standby, for instance."""
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    _, given, _ = REQUESTS["drain"]
    root.raise_request_exception = False
    page = root.post(f"{BASE}steer/drain/", given)
    connection.close()
    assert page.status_code == 503
    assert "Nothing was done, for the admin&#x27;s history cannot be written" in text(page)
    assert not process.requests


@pytest.mark.parametrize("action", REQUESTS)
def test_a_request_without_its_permission_is_refused(
    person: Person, process: FakeProcess, action: str
) -> None:
    permission, given, _ = REQUESTS[action]
    others = {each for each, *_rest in REQUESTS.values()} - {permission}
    client = person("view_cluster", *others)
    assert client.get(f"{BASE}steer/{action}/", given).status_code == 403
    assert client.post(f"{BASE}steer/{action}/", given).status_code == 403
    assert not process.requests
    assert not LogEntry.objects.exists()


def test_a_request_from_another_site_is_refused(root: Client, process: FakeProcess) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = root.cookies
    assert strict.post(f"{BASE}steer/rebalance/").status_code == 403
    assert not process.requests


@pytest.mark.parametrize(
    ("action", "given", "why"),
    [
        ("move", {"type": "99", "shard": "0"}, "no entity type of this number"),
        ("move", {"type": str(CART), "shard": "x"}, "has no home now"),
        ("move", {"type": str(CART), "shard": "0", "target": "n-x"}, "cannot take this shard"),
        ("drain", {"target": "n-x"}, "no longer in the cluster"),
        ("shutdown", {}, "no longer in the cluster"),
        ("passivate", {"type": str(CART)}, "The id of the entity is missing"),
        ("passivate", {"type": str(CART), "entity": "a\x00b"}, "The id of the entity is missing"),
        ("restart", {"type": str(GONE), "entity": "x"}, "has no home now"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_in_plain_words(
    root: Client, process: FakeProcess, action: str, given: dict[str, str], why: str
) -> None:
    for page in (root.get(f"{BASE}steer/{action}/", given), root.post(f"{BASE}steer/{action}/", given)):
        assert page.status_code == 409
        assert why in text(page)
    assert not process.requests


def test_who_comes_second_is_told_what_the_coordinator_says(root: Client, process: FakeProcess) -> None:
    process.outcome = OperatorReply(1, ReplyCode.REFUSED, "The shard is already moving.")
    page = root.post(f"{BASE}steer/move/", {"type": CART, "shard": 0, "target": "n-b"}, follow=True)
    assert "The shard is already moving." in text(page)


def test_no_answer_is_not_taken_for_a_yes(root: Client, process: FakeProcess) -> None:
    process.outcome = None
    page = root.post(f"{BASE}steer/rebalance/", follow=True)
    assert "may have been carried out or not" in text(page)


def test_a_loop_that_stands_still_behind_a_request_is_not_taken_for_a_no(
    root: Client, process: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = vars(operator_actions)["ask_cluster"]

    def stalls(job: Any, **how: Any) -> Any:
        ask(job, **how)
        raise Unavailable("the sharding loop of this process does not answer")

    monkeypatch.setattr(operator_actions, "ask_cluster", stalls)
    page = text(root.post(f"{BASE}steer/rebalance/", follow=True))
    assert process.requests
    assert "does not answer. The request may have been carried out or not" in page


def test_without_a_coordinator_nothing_is_asked(root: Client, process: FakeProcess) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_coordinator SET incarnation = 'n-gone'")
    assert "There is no coordinator now" in text(root.get(f"{BASE}steer/rebalance/"))


def test_a_site_that_is_not_connected_says_so(
    root: Client, process: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("this process is not connected to the cluster: Redis is away")

    monkeypatch.setattr(operator_actions, "ask_cluster", away)
    assert "Redis is away" in text(root.post(f"{BASE}steer/rebalance/", follow=True))


def test_draining_the_last_node_is_warned_of(root: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_node SET state = 'leaving' WHERE incarnation <> 'n-b'")
    assert "No other node is up" in text(root.get(f"{BASE}steer/drain/", {"target": "n-b"}))


@pytest.mark.parametrize("action", ["drain", "shutdown"])
def test_a_page_that_has_not_warned_of_the_last_node_ends_nothing(
    root: Client, process: FakeProcess, clock: HandClock, action: str
) -> None:
    page: Any = root.get(f"{BASE}steer/{action}/", {"target": "n-b"})
    fields = dict(page.context["plan"].fields)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM sharding_node WHERE incarnation <> 'n-b'")
    clock.time += MAX_AGE_SECONDS + 0.1
    answer = root.post(f"{BASE}steer/{action}/", fields)
    assert answer.status_code == 409
    assert "The other nodes are gone since this page was made" in text(answer)
    assert not process.requests
    warned: Any = root.get(f"{BASE}steer/{action}/", {"target": "n-b"})
    assert root.post(f"{BASE}steer/{action}/", dict(warned.context["plan"].fields)).status_code == 302
    assert [node for node, _ in process.requests] == ["n-b"]


def test_the_addresses_have_names() -> None:
    assert reverse("admin:sharding_cluster_changelist") == BASE
    assert reverse("admin:sharding_cluster_type", kwargs={"number": CART}) == f"{BASE}types/{CART}/"


NONSENSE = [
    "live/?page=http://[", "live/?page=types/1/entity/?id=%ED%A0%80", "live/?page=types/1/entity/?id=a%00b", "live/?page=%00",
    "types/1/entity/?id=%00", "types/1/entity/?id=a&at=99999999999999999999", "types/1/entity/?id=a&at=%D9%A1",
    "timeline/?before=99999999999999999999", "timeline/?action=%00", "nodes/%00/", "types/999999999/",
    "steer/passivate/?type=1&entity=%00", "steer/passivate/?type=%00&entity=a", "steer/move/?type=1&shard=%00&to=%00",
    "steer/move/?type=1&shard=99999999999999999999&to=x", "steer/drain/?node=%00", "steer/%00/",
]  # fmt: skip


@pytest.mark.parametrize("address", NONSENSE)
def test_nonsense_in_an_address_is_no_error(root: Client, address: str) -> None:
    assert root.get(BASE + address).status_code in (200, 400, 404, 409)
