"""The page of one entity reads, replays and shows a bounded number of bytes, whatever the entity
has stored.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from sharding_app.admin import views
from sharding_app.dashboard import history, jsontext
from sharding_app.dashboard.history import MAX_PAYLOAD_SHOWN
from sharding_app.dashboard.jsontext import MAX_SHOWN, pretty
from tests.support.answering_nodes import FakeNodes, HandClock, collector
from tests.support.cluster_rows import CART, Person

PAGE = f"/admin/sharding/cluster/types/{CART}/entity/?id=alice"


@pytest.fixture(autouse=True)
def looks(rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "collector", collector(FakeNodes(), HandClock()))


def grow(length: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE sharding_event SET payload = %s WHERE entity = 'alice'",
            [json.dumps({"sku": "x" * length, "quantity": 1})],
        )


def test_a_history_of_too_many_bytes_is_not_read(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(500)
    monkeypatch.setattr(history, "MAX_REPLAY_BYTES", 1000)
    with CaptureQueriesContext(connection) as captured:
        page = root.get(PAGE)
    assert "too many to replay for a page" in page.content.decode()
    whole = [each["sql"] for each in captured if '"payload"::text' in each["sql"]]
    assert all("octet_length" in sql or "LEFT(" in sql for sql in whole), whole
    monkeypatch.setattr(history, "MAX_REPLAY_BYTES", 10_000)
    assert "too many to replay" not in root.get(PAGE).content.decode()


def test_a_long_payload_is_cut_by_the_server(root: Client) -> None:
    grow(3 * MAX_PAYLOAD_SHOWN)
    page = root.get(PAGE)
    longest = max(len(each["payload"]) for each in page.context["events"])
    assert longest == MAX_PAYLOAD_SHOWN + 2
    assert max(len(each.shown_payload) for each in page.context["history"].events) == MAX_PAYLOAD_SHOWN + 1


def test_contents_are_not_read_for_those_who_may_not_see_them(person: Person) -> None:
    with CaptureQueriesContext(connection) as captured:
        person("view_cluster").get(PAGE)
    read = [each["sql"] for each in captured if 'FROM "sharding_event"' in each["sql"]]
    assert read
    assert not [sql for sql in read if "payload" in sql or '"reply"' in sql]


def test_the_digest_of_arguments_is_shown_with_the_payloads_alone(person: Person) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_event SET command = 'add#2d531532'")
    shown = person("view_event", "view_cluster").get(PAGE).content.decode()
    assert "<td>add</td>" in shown
    assert "2d531532" not in shown
    assert "add#2d531532" in person("view_cluster", "view_payload").get(PAGE).content.decode()


def test_one_replay_runs_at_a_time(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "READ_SECONDS", 0.0)
    with history._replaying:
        assert "Try again in a moment" in root.get(PAGE).content.decode()
    assert "&quot;book&quot;: 15" in root.get(PAGE).content.decode()


def test_a_failing_replay_lets_the_next_one_run(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(history, "rebuilt", broken)
    with pytest.raises(RuntimeError):
        root.get(PAGE)
    assert not history._replaying.locked()


def test_json_is_cut_before_it_is_indented(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def parts(value: Any, line: str) -> Any:
        nonlocal made
        for _ in range(10 * MAX_SHOWN):
            made += 1
            yield "x" * 10

    text = json.dumps(list(range(1000)))
    monkeypatch.setattr(jsontext, "_parts", parts)
    assert len(pretty(text)) == MAX_SHOWN + 2
    assert made <= MAX_SHOWN / 10 + 1
    monkeypatch.setattr(jsontext, "MAX_READ", 100)
    assert pretty(text) == f"{text[:MAX_SHOWN]} …"
