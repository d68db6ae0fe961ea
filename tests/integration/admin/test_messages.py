"""Messages and timers on the dashboard: what is shown, to whom, and what an operator does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections
from django.test import Client
from django.utils.timezone import now
from psycopg import sql

from sharding_app.adapters.django import database as db
from sharding_app.admin import operator_actions, views
from sharding_app.dashboard import messages as shown
from sharding_app.embedded import Servers
from sharding_app.errors import PartiallyApplied
from sharding_app.models import Message
from sharding_app.operations import messages, snapshot
from sharding_app.operations.cache import Collector
from sharding_app.operations.messages import Changed
from sharding_app.ports.deliveries import PARTLY_APPLIED, PARTLY_ELSEWHERE
from sharding_app.protocol.delivery.recurrence import Recurrence
from sharding_app.protocol.ids import shard_of
from sharding_app.runtime.delivery.rows import text_of
from tests.support.answering_nodes import FakeNodes, HandClock, collector
from tests.support.cluster_rows import CART, GONE, SHARDS, Person
from tests.support.slack import SLACK

BASE = "/admin/sharding/cluster/"
SCRIPT = "<script>alert(1)</script>"
Put = Callable[..., str]


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch, rows: None) -> Collector:
    found = collector(FakeNodes(), HandClock())
    monkeypatch.setattr(views, "collector", found)
    monkeypatch.setattr(operator_actions, "collector", found)
    return found


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[Changed]:
    """What homes were told."""
    found: list[Changed] = []
    monkeypatch.setattr(messages, "tell", found.extend)
    return found


@pytest.fixture
def put(db: None) -> Put:
    """Store a message; `due` counts in seconds from now."""

    def stored(
        name: str, entity: str = "alice", *, type_id: int = CART, due: float = 3600.0, **more: Any
    ) -> str:
        values: dict[str, Any] = {
            "id": name, "type_id": type_id, "shard": shard_of(entity, SHARDS if type_id == CART else 4), "entity": entity,
            "epoch": 1 if type_id == CART else None, "seq": 1, "position": 0, "target_type": "shop.Stock", "target": "book",
            "command": "reserve", "args": msgspec.msgpack.encode(["sesame", 3]), "due": now() + timedelta(seconds=due),
            **more,
        }  # fmt: skip
        columns = sql.SQL(", ").join(map(sql.Identifier, values))
        places = sql.SQL(", ").join([sql.Placeholder()] * len(values))
        statement = sql.SQL("INSERT INTO sharding_message ({}) VALUES ({})").format(columns, places)
        with connection.cursor() as cursor:
            cursor.execute(statement, list(values.values()))
        return name

    return stored


def text(page: Any) -> str:
    """What a reader sees."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.content.decode()))


def listed(page: Any) -> list[str]:
    """The ids of the rows."""
    return [each["id"] for each in page.context["message_rows"]]


# -- What is shown ---------------------------------------------------------------------------------


def four(put: Put) -> None:
    put("waits")
    put("late", due=-3600.0)
    put("fails", due=60.0, failures=2, error="broken: the shelf is empty")
    put("stopped", due=-7200.0, parked=True, error="broken: the shelf is empty")


def test_messages_are_shown_by_their_state(root: Client, put: Put) -> None:
    four(put)
    expected = {
        "": ["late", "fails", "waits"], "?state=pending": ["late", "fails", "waits"], "?state=overdue": ["late"],
        "?state=failing": ["fails"], "?state=parked": ["stopped"],
    }  # fmt: skip
    for query, ids in expected.items():
        page = root.get(f"{BASE}messages/{query}")
        assert listed(page) == ids, query
    assert "overdue" in text(root.get(f"{BASE}messages/?state=overdue"))
    assert root.get(f"{BASE}messages/?state=nonsense").status_code == 404


def test_a_cluster_without_messages_says_so(root: Client) -> None:
    assert "No entity has stored a durable message or timer yet." in text(root.get(f"{BASE}messages/"))


def test_counts_that_take_too_long_do_not_pass_for_none(
    root: Client, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("one", parked=True)
    monkeypatch.setattr(snapshot, "_left_out_until", {"default": float("inf")})
    page = text(root.get(f"{BASE}messages/?state=parked"))
    assert "takes too long to count messages and timers" in page
    assert "No entity has stored" not in page
    assert "one" in listed(root.get(f"{BASE}messages/?state=parked"))
    assert "the database takes too long to count them" in text(root.get(BASE))


def test_a_type_without_messages_is_not_offered(root: Client, put: Put) -> None:
    put("one")
    page = root.get(f"{BASE}messages/")
    assert [each["name"] for each in page.context["types_shown"]] == ["shop.Cart"]
    assert [each["name"] for each in page.context["counts"]] == ["shop.Cart"]


def test_the_page_of_one_type_shows_no_others(root: Client, put: Put) -> None:
    put("cart")
    put("gone", "x", type_id=GONE)
    assert listed(root.get(f"{BASE}messages/")) == ["cart", "gone"]
    assert listed(root.get(f"{BASE}messages/?type={GONE}")) == ["gone"]
    assert root.get(f"{BASE}messages/?type=99").status_code == 404


def test_pages_follow_one_another_without_gap_or_repetition(root: Client, put: Put) -> None:
    """Many are due in the same moment."""
    at = now() + timedelta(hours=1)
    expected = [put(f"m-{each:03}", f"e{each}", type_id=CART if each < 90 else GONE) for each in range(120)]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_message SET due = %s", [at])
    seen: list[str] = []
    query = ""
    for _ in range(5):
        page = root.get(f"{BASE}messages/{query}")
        seen += listed(page)
        assert len(listed(page)) <= shown.SHOWN
        found = re.search(r'href="(\?[^"]*)" rel="next"', page.content.decode())
        if found is None:
            break
        query = found[1].replace("&amp;", "&")
    assert seen == expected


@pytest.mark.parametrize(
    "after", ["x", "[]", "[1,2,3]", '[1,"2026-01-01","\\u0000"]', '[99999999999,"2026-01-01","a"]',
              '[true,"2026-01-01","a"]', "[" * 5000, '[1,"0001-01-01T00:00:00+14:00","a"]', '[1,"infinity","a"]'],
)  # fmt: skip
def test_a_place_that_is_none_is_not_found(root: Client, put: Put, after: str) -> None:
    put("one")
    assert root.get(f"{BASE}messages/", {"after": after}).status_code == 404


def test_an_entity_shows_its_own(root: Client, put: Put) -> None:
    put("mine")
    put("timer", key="closing", target_type="shop.Cart", target="alice", command="close")
    put("fails", error="broken: x", failures=1)
    put("parked", error="broken: x", parked=True)
    put("other", "bob")
    page = root.get(f"{BASE}types/{CART}/entity/?id=alice")
    assert sorted(listed(page)) == ["fails", "mine", "parked", "timer"]
    assert "closing" in text(page)
    assert "itself" in text(page)
    assert listed(root.get(f"{BASE}messages/?entity=alice&state=parked")) == ["parked"]
    assert listed(root.get(f"{BASE}messages/?entity=alice&state=failing&type={CART}")) == ["fails"]
    assert listed(root.get(f"{BASE}messages/?entity=nobody")) == []
    assert "No entity can have this id" in text(root.get(f"{BASE}messages/?entity={'x' * 513}"))


def test_an_entity_says_if_not_all_could_be_searched(
    root: Client, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown, "SEARCHED", 2)
    put("timer", key="closing", due=9999)
    put("fails", error="broken: x", due=9999)
    page = root.get(f"{BASE}types/{CART}/entity/?id=alice")
    assert sorted(listed(page)) == ["fails", "timer"]
    assert "There may be more" in text(page)
    monkeypatch.setattr(shown, "SEARCHED", 3)
    assert "There may be more" not in text(root.get(f"{BASE}types/{CART}/entity/?id=alice"))


def test_the_overview_has_nothing_about_messages_without_any(root: Client) -> None:
    assert "Messages overdue" not in text(root.get(BASE))


def test_counts_are_shown_where_a_type_moves(root: Client, put: Put) -> None:
    four(put)
    assert "Messages overdue / parked ! needs attention 1 / 1" in text(root.get(BASE))
    assert "1 overdue, 1 failing, 1 parked" in text(root.get(f"{BASE}types/{CART}/"))
    assert "overdue" not in text(root.get(f"{BASE}types/{GONE}/"))
    assert "is parked" in text(root.get(BASE))


def test_a_count_ends_at_its_limit(root: Client, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    from sharding_app.dashboard.presenters import messages as words
    from sharding_app.operations import snapshot

    monkeypatch.setattr(snapshot, "MOST_COUNTED", 3)
    monkeypatch.setattr(words, "MOST_COUNTED", 3)
    for each in range(5):
        put(f"m{each}", f"e{each}", due=-600.0 - each)
    assert "3+ overdue, 0 failing, 0 parked" in text(root.get(f"{BASE}types/{CART}/"))


# -- What needs a permission -----------------------------------------------------------------------


def test_contents_need_a_permission_of_their_own(person: Person, put: Put) -> None:
    put("one", error="broken: the shelf is empty", parked=True)
    pages = [
        f"{BASE}messages/?state=parked",
        f"{BASE}messages/one/?id=one",
        f"{BASE}types/{CART}/entity/?id=alice",
    ]
    for page in pages:
        seen = person("view_cluster").get(page).content.decode()
        assert "broken" in seen
        assert "shelf" not in seen
        assert "sesame" not in seen
        assert "the shelf is empty" in person("view_cluster", "view_payload").get(page).content.decode()
    assert "&quot;sesame&quot;" in person("view_cluster", "view_payload").get(pages[1]).content.decode()
    assert (
        "You have no permission to see the content" in person("view_cluster").get(pages[1]).content.decode()
    )


@pytest.mark.parametrize("action", ["run", "retry", "discard"])
def test_each_action_needs_its_permission(person: Person, put: Put, action: str) -> None:
    put("one", parked=action == "retry")
    mine = "discard_message" if action == "discard" else "retry_message"
    other = "retry_message" if action == "discard" else "discard_message"
    address = f"{BASE}steer/{action}/?message=one"
    for having in (
        ("view_cluster",),
        ("view_cluster", other),
        ("view_cluster", "stop_entity", "view_payload"),
    ):
        browser = person(*having)
        assert browser.get(address).status_code == 403
        assert browser.post(f"{BASE}steer/{action}/", {"message": "one"}).status_code == 403
        for page in (
            f"{BASE}messages/one/?id=one",
            f"{BASE}messages/?state={'parked' if action == 'retry' else 'pending'}",
        ):
            assert f"steer/{action}/?" not in browser.get(page).content.decode()
            assert f'formaction="{BASE}steer/{action}/"' not in browser.get(page).content.decode()
    assert Message.objects.filter(id="one").exists()
    assert person(mine).get(address).status_code == 403, "the dashboard itself needs view_cluster"
    allowed = person("view_cluster", mine)
    assert f"steer/{action}/?message=one" in allowed.get(f"{BASE}messages/one/?id=one").content.decode()
    assert allowed.get(address).status_code == 200


# -- Any content -----------------------------------------------------------------------------------


def test_no_name_or_content_is_markup(root: Client, put: Put) -> None:
    put(
        SCRIPT, SCRIPT, target=SCRIPT, target_type=SCRIPT, command=SCRIPT, key=SCRIPT, error=SCRIPT, every=SCRIPT,
        on_failure=SCRIPT, reply_to=SCRIPT, args=msgspec.msgpack.encode([SCRIPT]),
    )  # fmt: skip
    pages = [
        f"{BASE}messages/", f"{BASE}messages/?state=failing", f"{BASE}messages/one/?id={SCRIPT}",
        f"{BASE}types/{CART}/entity/?id={SCRIPT}", f"{BASE}messages/?entity={SCRIPT}", f"{BASE}steer/discard/?message={SCRIPT}",
        f"{BASE}steer/run/?all=1&state=pending&type={SCRIPT}", f"{BASE}messages/?state={SCRIPT}",
    ]  # fmt: skip
    for page in pages:
        answer = root.get(page)
        assert answer.status_code in (200, 404, 409)
        assert "<script>alert" not in answer.content.decode(), page


@pytest.mark.parametrize(
    ("args", "seen"),
    [
        (msgspec.msgpack.encode([2**63, 1e300, None]), "9223372036854775808"),
        (b"\xc1", "b&#x27;\\xc1&#x27;"),
        (msgspec.msgpack.encode({b"a": 1}), "YQ=="),
        (msgspec.msgpack.encode([[[]]] * 3), "[]"),
        (b"\x91" * 15000 + b"\x90", "x91"),
        (b"x" * 20_001, "Too long to be shown."),
        (b"", "b&#x27;&#x27;"),
    ],
)
def test_any_arguments_can_be_shown(root: Client, put: Put, args: bytes, seen: str) -> None:
    put("one", args=args)
    page = root.get(f"{BASE}messages/one/?id=one")
    assert page.status_code == 200
    assert seen in page.content.decode()


@pytest.mark.parametrize(
    ("every", "seen"),
    [
        (Recurrence(seconds=7200.0).encode(), "every 2 h"),
        (Recurrence(day_at="07:00", tz="Europe/Berlin").encode(), "daily at 07:00 Europe/Berlin"),
        ("nonsense", "daily at"),
    ],
)
def test_a_timer_says_how_it_repeats(root: Client, put: Put, every: str, seen: str) -> None:
    put("one", key="k", every=every)
    assert seen in text(root.get(f"{BASE}messages/"))
    assert seen in text(root.get(f"{BASE}messages/one/?id=one"))


def test_huge_numbers_break_nothing(root: Client, put: Put) -> None:
    put("one", seq=2**63 - 1, position=2**31 - 1, failures=2**31 - 1, due=3e9)
    for page in ("messages/", "messages/one/?id=one", f"types/{CART}/entity/?id=alice"):
        assert "2147483647" in root.get(BASE + page).content.decode()


@pytest.mark.parametrize("message", ["", "nothing", "\x00", "x" * 3000, "\ud800"])
def test_a_message_that_is_not_there_is_said_to_be_gone(root: Client, message: str) -> None:
    page = root.get(f"{BASE}messages/one/", {"id": message.encode(errors="surrogatepass")})
    assert page.status_code in (200, 404)
    if page.status_code == 200:
        assert "No message or timer with this id waits" in text(page)


# -- What an operator does -------------------------------------------------------------------------


def confirm(browser: Client, address: str, commits: Any) -> str:
    """Read the plan, send its form, and return the messages of the page after it."""
    page = browser.get(BASE + address)
    assert page.status_code == 200, text(page)
    assert "What will happen" in text(page)
    form = re.search(r'<form method="post" action="([^"]+)"', page.content.decode())
    assert form is not None
    fields: dict[str, list[str]] = {}
    for name, value in page.context["plan"].fields:
        fields.setdefault(name, []).append(value)
    with commits(execute=True):
        answer = browser.post(form[1], fields)
    assert answer.status_code == 302
    return text(browser.get(answer["Location"]))


def row(name: str) -> Message:
    found: Message = Message.objects.get(id=name)
    return found


def test_a_timer_is_run_before_its_time(
    root: Client, put: Put, told: list[Changed], django_capture_on_commit_callbacks: Any
) -> None:
    put("one", key="closing")
    said = confirm(root, "steer/run/?message=one", django_capture_on_commit_callbacks)
    assert "Run the timer closing of shop.Cart alice now: done" in said
    assert row("one").due <= now()
    assert told == [Changed("one", "shop.Cart", "alice")]
    (entry,) = LogEntry.objects.all()
    assert entry.change_message == "Run the timer closing of shop.Cart alice now: done"


def test_a_message_that_failed_gets_its_place_in_the_order_back(
    root: Client, put: Put, django_capture_on_commit_callbacks: Any
) -> None:
    """A later one of the pair is due since its commit."""
    put("first", due=600.0, failures=3, error="broken: x", at=now() - timedelta(minutes=10))
    put("second", due=-500.0, seq=2)
    confirm(root, "steer/run/?message=first", django_capture_on_commit_callbacks)
    first, second = row("first"), row("second")
    assert first.due == first.at < second.due
    assert (first.failures, first.error) == (0, "")


def test_a_parked_one_is_retried_and_one_that_waits_is_not(
    root: Client, put: Put, told: list[Changed], django_capture_on_commit_callbacks: Any
) -> None:
    four(put)
    address = "steer/retry/?message=stopped&message=waits&message=nothing"
    assert "Retry a message of shop.Cart alice: done" in confirm(
        root, address, django_capture_on_commit_callbacks
    )
    found = row("stopped")
    assert (found.parked, found.failures, found.error) == (False, 0, "")
    assert found.due <= now()
    assert row("waits").due > now()
    assert [each.id for each in told] == ["stopped"]
    assert root.get(f"{BASE}steer/retry/?message=waits").status_code == 409


def test_a_parked_timer_that_repeats_fires_now(
    root: Client, put: Put, django_capture_on_commit_callbacks: Any
) -> None:
    """One that skips what it has missed would skip this too, if its time stayed in the past."""
    every = Recurrence(seconds=60.0, missed="skip").encode()
    put("one", key="k", every=every, due=-9999.0, parked=True, error="broken: x")
    confirm(root, "steer/retry/?message=one", django_capture_on_commit_callbacks)
    assert now() - row("one").due < timedelta(seconds=30)
    with connection.cursor() as cursor:
        cursor.execute("SELECT now() - occasion FROM sharding_message")
        (since,) = cursor.fetchone()
    assert since > timedelta(seconds=9000), "the next time counts from the one that has failed"


def test_discarding_deletes(
    root: Client, put: Put, told: list[Changed], django_capture_on_commit_callbacks: Any
) -> None:
    four(put)
    said = confirm(root, "steer/discard/?message=stopped&message=waits", django_capture_on_commit_callbacks)
    assert "Discard 2 messages and timers: done" in said
    assert sorted(each.id for each in Message.objects.all()) == ["fails", "late"]
    assert sorted(each.id for each in told) == ["stopped", "waits"]


def test_a_message_that_was_partly_applied_is_warned_of(root: Client, put: Put) -> None:
    put("here", parked=True, error=PARTLY_APPLIED)
    put("there", parked=True, error=text_of(PartiallyApplied("it had committed a part")))
    put("moved", parked=True, error=PARTLY_ELSEWHERE)
    for each in ("here", "there", "moved"):
        page = root.get(f"{BASE}steer/retry/?message={each}")
        assert "their handlers run again from the beginning" in text(page)
    put("two", parked=True, error="broken: x")
    assert "from the beginning" not in text(root.get(f"{BASE}steer/retry/?message=two"))


def test_a_page_that_has_not_warned_of_it_retries_nothing(
    root: Client, put: Put, told: list[Changed], django_capture_on_commit_callbacks: Any
) -> None:
    """Another operator has let it run meanwhile, and its handler has committed in its middle."""
    put("one", parked=True, error="broken: x")
    page: Any = root.get(f"{BASE}steer/retry/?message=one")
    fields = dict(page.context["plan"].fields)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_message SET error = %s", [PARTLY_APPLIED])
    with django_capture_on_commit_callbacks(execute=True):
        answer = root.post(f"{BASE}steer/retry/", fields)
    assert answer.status_code == 409
    assert "taken effect in part since this page was made" in text(answer)
    assert (row("one").parked, told) == (True, [])
    confirm(root, "steer/retry/?message=one", django_capture_on_commit_callbacks)
    assert not row("one").parked


def test_all_of_a_list_are_those_that_the_plan_has_counted(
    root: Client, put: Put, django_capture_on_commit_callbacks: Any
) -> None:
    for each in range(60):
        put(f"m{each}", f"e{each}", parked=True, error="broken: x")
    put("gone", "x", type_id=GONE, parked=True, error="broken: x")
    page = root.get(f"{BASE}messages/?state=parked&type={CART}").content.decode()
    (address,) = re.findall(r'href="[^"]*(steer/retry/\?all=1[^"]*)"', page)
    plan = root.get(BASE + address.replace("&amp;", "&"))
    assert "60 of shop.Cart to shop.Stock.reserve" in text(plan)
    put("later", parked=True, error="broken: x")
    fields: dict[str, list[str]] = {}
    for name, value in plan.context["plan"].fields:
        fields.setdefault(name, []).append(value)
    root.post(f"{BASE}steer/retry/", fields)
    assert sorted(each.id for each in Message.objects.filter(parked=True)) == ["gone", "later"]


def test_all_of_a_later_page_are_those_from_there_on(root: Client, put: Put) -> None:
    for each in range(60):
        put(f"m-{each:03}", f"e{each}", parked=True, error="broken: x")
    first = root.get(f"{BASE}messages/?state=parked").content.decode()
    (following,) = re.findall(r'href="(\?[^"]*)" rel="next"', first)
    page = root.get(f"{BASE}messages/{following.replace('&amp;', '&')}")
    (address,) = re.findall(r'href="[^"]*(steer/discard/\?all=1[^"]*)"', page.content.decode())
    plan = root.get(BASE + address.replace("&amp;", "&"))
    fields = plan.context["plan"].fields
    assert [value for name, value in fields if name == "message"] == listed(page)
    assert "Those of earlier pages are not meant." in text(plan)
    back = plan.context["plan"].back
    assert listed(root.get(f"{BASE}{back}")) == listed(page)


def test_a_list_of_one_entity_is_only_its_own(root: Client, put: Put) -> None:
    put("mine", parked=True, error="x")
    put("other", "bob", parked=True, error="x")
    plan = root.get(f"{BASE}steer/discard/?all=1&state=parked&type=&entity=alice")
    assert [value for name, value in plan.context["plan"].fields if name == "message"] == ["mine"]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?state=parked",
        "?all=1",
        "?all=1&state=nonsense",
        "?message=%00",
        "?all=1&state=parked&entity=%00",
        "?all=1&state=parked&after=x",
    ],
)
def test_nothing_chosen_is_refused(root: Client, put: Put, query: str) -> None:
    put("one", parked=True)
    for action in ("run", "retry", "discard"):
        assert root.get(f"{BASE}steer/{action}/{query}").status_code == 409
        assert root.post(f"{BASE}steer/{action}/{query}").status_code == 409
    assert row("one").parked


def test_too_many_are_refused(root: Client) -> None:
    query = "&".join(f"message={each}" for each in range(501))
    page = root.get(f"{BASE}steer/discard/?{query}")
    assert page.status_code == 409
    assert "At most 500 messages at a time." in text(page)


def test_one_that_has_taken_effect_meanwhile_is_said_to_be_gone(
    root: Client, put: Put, told: list[Changed]
) -> None:
    put("stays")
    put("goes")
    plan = root.get(f"{BASE}steer/discard/?message=stays&message=goes").context["plan"]
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM sharding_message WHERE id = 'goes'")
    done, said = plan.work()
    assert done
    assert said.startswith("1 done. 1 were gone or changed meanwhile")


def test_a_refusal_of_the_server_is_told(root: Client, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import ProgrammingError

    def refuse(*_: Any, **__: Any) -> Any:
        raise ProgrammingError("permission denied for table sharding_message")

    put("one")
    monkeypatch.setattr(messages, "run_query", refuse)
    answer = root.post(f"{BASE}steer/discard/", {"message": "one"})
    assert "nothing is changed: permission denied for table sharding_message" in text(
        root.get(answer["Location"])
    )
    assert LogEntry.objects.get().change_message.endswith("permission denied for table sharding_message")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("action", ["run", "discard"])
def test_an_outcome_whose_answer_was_lost_is_not_said_to_be_none(
    root: Client, put: Put, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    put("one", key="k")
    database: Any = type(connections[DEFAULT_DB_ALIAS])
    commit = database._commit
    asked: list[str] = []

    def run_query(cursor: Any, query: str, params: Any) -> Any:
        asked.append(query)
        return db.run_query(cursor, query, params)

    def loses_the_answer(used: Any) -> None:
        commit(used)
        if asked:
            asked.clear()
            used.connection.close()
            raise OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patched:
        patched.setattr(messages, "run_query", run_query)
        patched.setattr(database, "_commit", loses_the_answer)
        answer = root.post(f"{BASE}steer/{action}/", {"message": "one"})
    said = LogEntry.objects.get().change_message
    assert Message.objects.filter(id="one", due__gt=now()).count() == 0, "it was committed"
    assert "it is not known whether anything is changed: server closed the connection" in said
    assert said in text(root.get(answer["Location"]))


# -- A delivery at the same moment -----------------------------------------------------------------


@pytest.fixture
def other(servers: Servers) -> Iterator[psycopg.Connection[Any]]:
    """A session of the home of the target."""
    url = servers.database_url.rpartition("/")[0] + f"/{connection.settings_dict['NAME']}"
    with psycopg.connect(url) as found:
        yield found
        found.rollback()


def is_waited_for(other: psycopg.Connection[Any]) -> bool:
    """Whether a session waits for the end of this one's transaction."""
    found = other.execute(
        "SELECT FROM pg_locks WHERE NOT granted AND transactionid = pg_current_xact_id()::xid"
    )
    return found.fetchone() is not None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("action", ["run", "discard"])
def test_a_delivery_that_is_under_way_is_waited_for(
    put: Put, other: psycopg.Connection[Any], told: list[Changed], *, taken: bool, action: str
) -> None:
    """It holds the row's lock. Its commit takes the row, and its rollback leaves it."""
    put("one")
    other.execute("SELECT FROM sharding_message WHERE id = 'one' FOR UPDATE")

    def change() -> list[Changed]:
        try:
            return (
                messages.discard(["one"]) if action == "discard" else messages.run_now(["one"], parked=False)
            )
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(change)
        while not is_waited_for(other):
            assert not found.done()
        if taken:
            other.execute("DELETE FROM sharding_message WHERE id = 'one'")
            other.commit()
        else:
            other.rollback()
        assert found.result() == ([] if taken else [Changed("one", "shop.Cart", "alice")])
    assert told == found.result()


@pytest.mark.django_db(transaction=True)
def test_a_row_that_stays_locked_is_not_waited_for_long(
    put: Put, other: psycopg.Connection[Any], root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("one")
    other.execute("SELECT FROM sharding_message WHERE id = 'one' FOR UPDATE")
    with monkeypatch.context() as hasty:
        hasty.setattr(db, "READ_SECONDS", 0.2 * SLACK)
        answer = root.post(f"{BASE}steer/discard/", {"message": "one"})
    assert "nothing is changed: other transactions hold these rows" in text(root.get(answer["Location"]))
    assert row("one").id == "one"
