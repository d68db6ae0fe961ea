"""The tables: read-only, found by key, never counted."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin import AdminSite, site
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from sharding_app import models
from sharding_app.admin import register
from sharding_app.dashboard.keyset import key_text, parse_key
from sharding_app.models import Event
from tests.support.cluster_rows import CART, Person, add_projection

SHOWN = [
    "node", "entitytype", "shard", "event", "snapshot", "rememberedentity", "lease", "decision",
    "projectionversion", "projectionposition", "heldentity",
]  # fmt: skip
BIG = ["event", "snapshot", "rememberedentity", "shard"]


def address(model: str, view: str = "changelist", *args: Any) -> str:
    return reverse(f"admin:sharding_{model}_{view}", args=args)


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("model", SHOWN)
def test_each_table_is_shown_and_cannot_be_changed(root: Client, model: str) -> None:
    page = root.get(address(model))
    assert page.status_code == 200
    assert root.get(address(model, "add")).status_code == 403
    row = site._registry[getattr(models, _class(model))].model.objects.first()
    if row is None:
        return
    key = row.pk if not isinstance(row.pk, tuple) else key_text(row.pk)
    shown = root.get(address(model, "change", key))
    assert shown.status_code == 200
    assert 'type="submit"' not in shown.content.decode().partition('id="content"')[2]
    assert root.post(address(model, "change", key), {}).status_code == 403
    assert root.get(address(model, "delete", key)).status_code == 403


@pytest.mark.parametrize("model", ["shard", "projectionposition", "heldentity"])
def test_rows_tell_their_journal_where_there_are_several(
    rows: None, root: Client, settings: Any, model: str
) -> None:
    add_projection()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_shard SET journal = 'journal_b' WHERE shard % 2 = 1")
        cursor.execute("UPDATE sharding_held SET journal = 'journal_b' WHERE entity = 'bob'")
        cursor.execute("UPDATE sharding_position SET journal = 'journal_b' WHERE first_slice = 64")
    row = site._registry[getattr(models, _class(model))].model.objects.filter(journal="journal_b").first()
    page = address(model, "change", key_text(row.pk))
    assert "journal" not in _cells(root.get(address(model)))
    alone = root.get(page).content.decode()
    assert "field-epoch" in alone or "field-failures" in alone or "field-last_slice" in alone
    assert "field-lies_in" not in alone
    assert "field-journal" not in alone
    settings.SHARDING = {**settings.SHARDING, "JOURNALS": {"default": 1, "journal_b": 1}}
    told = _cells(root.get(address(model)))["journal"]
    assert set(told) == {"default", "journal_b"}
    found = root.get(address(model))
    assert told == [each.journal or "default" for each in found.context["cl"].result_list]
    assert '<div class="readonly">journal_b</div>' in root.get(page).content.decode()


def _cells(page: Any) -> dict[str, list[str]]:
    """Return the texts of a list's columns that are about journals."""
    found = re.findall(r'<td class="field-lies_in[^"]*">(.*?)</td>', page.content.decode())
    return {"journal": found} if found else {}


def test_what_projections_have_left_is_found_by_projection_and_by_entity(
    rows: None, root: Client, person: Person
) -> None:
    add_projection()
    with CaptureQueriesContext(connection) as captured:
        held = root.get(address("heldentity"), {"projection": "7"})
    assert _entities(held) == ["alice", "bob"]
    assert not [each["sql"] for each in captured if "sharding_" in each["sql"] and "COUNT(" in each["sql"]]
    assert _entities(root.get(address("heldentity"), {"q": "bob"})) == ["bob"]
    assert _entities(root.get(address("heldentity"), {"projection": "8"})) == []
    after = root.get(address("heldentity"), {"after": key_text((7, CART, "alice"))})
    assert _entities(after) == ["bob"]
    positions = root.get(address("projectionposition")).context["cl"].result_list
    assert [(each.first_slice, each.events) for each in positions] == [(0, 1000), (64, 234)]
    for model, key in (("projectionposition", (7, "", 64)), ("heldentity", (7, CART, "alice"))):
        assert root.get(address(model, "change", key_text(key))).context["original"].pk == key
    failed = address("heldentity", "change", key_text((7, CART, "alice")))
    assert "the shelf is empty" not in person("view_heldentity").get(failed).content.decode()
    assert "the shelf is empty" in person("view_heldentity", "view_payload").get(failed).content.decode()


def _class(model: str) -> str:
    return next(name for name in models.__all__ if name.lower() == model)


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("model", SHOWN)
def test_each_table_needs_its_own_permission(person: Person, model: str) -> None:
    assert person().get(address(model)).status_code == 403
    assert person(f"view_{model}").get(address(model)).status_code == 200
    assert person(f"view_{model}", staff=False).get(address(model)).status_code == 302
    assert Client().get(address(model)).status_code == 302


@pytest.mark.usefixtures("rows")
def test_a_payload_needs_a_permission_of_its_own(person: Person) -> None:
    event = Event.objects.get(entity="alice", seq=5)
    page = address("event", "change", key_text(event.pk))
    assert "quantity" not in person("view_event").get(page).content.decode()
    assert "&quot;quantity&quot;: 5" in person("view_event", "view_payload").get(page).content.decode()


def _entities(page: Any) -> list[str]:
    return [event.entity for event in page.context["cl"].result_list]


@pytest.mark.usefixtures("rows")
def test_a_search_is_for_the_beginning_of_an_id(root: Client) -> None:
    assert _entities(root.get(address("event"), {"q": "alice"})) == ["alice"] * 5
    assert _entities(root.get(address("event"), {"q": "lice"})) == []
    assert _entities(root.get(address("event"), {"q": "user-00"})) == [f"user-00{n}" for n in range(10)]
    refused = root.get(address("event"), {"q": "a\x00b"})
    assert "Null characters are not allowed" in refused.content.decode()


@pytest.mark.usefixtures("rows")
def test_pages_follow_one_another_without_gap_or_repetition(root: Client) -> None:
    seen: list[Any] = []
    query = "?q=user"
    for _ in range(5):
        page = root.get(address("event") + query)
        listing = page.context["cl"]
        seen += [event.entity for event in listing.result_list]
        if listing.next_page is None:
            break
        query = listing.next_page
    assert seen == [f"user-{n:03}" for n in range(120)]


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("model", BIG)
@pytest.mark.parametrize("query", ["", "?q=1", "?type=1", "?after=[1,%22a%22,1]"])
def test_nothing_is_counted_and_nothing_is_skipped(root: Client, model: str, query: str) -> None:
    with CaptureQueriesContext(connection) as captured:
        page = root.get(address(model) + query)
    assert page.status_code in (200, 302)
    ours = [each["sql"] for each in captured if "sharding_" in each["sql"]]
    assert not [sql for sql in ours if "COUNT(" in sql or "OFFSET" in sql]
    large = [sql for sql in ours if 'FROM "sharding_event"' in sql]
    assert all("LIMIT" in sql and '"type_id" = ' in sql for sql in large)


@pytest.mark.usefixtures("rows")
def test_every_page_of_the_journal_walks_along_the_index(root: Client) -> None:
    """Judged with sequential scans priced out, so that the plan is that of a large table."""
    for query in ("", "?q=user-05", f"?after={quote(key_text((CART, 'user-050', 1)))}"):
        with CaptureQueriesContext(connection) as captured:
            root.get(address("event") + query)
        sql = [each["sql"] for each in captured if 'FROM "sharding_event"' in each["sql"]][-1]
        with connection.cursor() as cursor:
            cursor.execute("SET enable_seqscan = off")
            cursor.execute("SET enable_bitmapscan = off")
            cursor.execute(f"EXPLAIN {sql}")
            plan = "\n".join(row[0] for row in cursor.fetchall())
            cursor.execute("RESET enable_seqscan")
            cursor.execute("RESET enable_bitmapscan")
        assert "Index Scan using sharding_event_pkey" in plan
        assert "Sort" not in plan, plan


@pytest.fixture
def many(rows: None) -> None:
    """A type with a history of ten thousand events, and two hundred types without rows."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " SELECT n, 'many.T' || n, 'event_sourced', 4, 'x', 'h', '', 's' FROM generate_series(10, 209) n;"
            " INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
            " SELECT 1, 'long', n, 1, 1, 'Added', 1, '{}' FROM generate_series(1, 10000) n;"
            " INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state)"
            " SELECT 1, 'long', n, 1, 1, '{}' FROM generate_series(1, 10000) n;"
            " INSERT INTO sharding_remembered (type_id, shard, entity, epoch)"
            " SELECT 1, 1, 'e' || lpad(n::text, 5, '0'), 1 FROM generate_series(1, 10000) n;"
            " INSERT INTO sharding_shard (type_id, shard, epoch, step)"
            " SELECT 1, n, 1, 'stopped' FROM generate_series(100, 10099) n;"
            " ANALYZE sharding_event, sharding_snapshot, sharding_remembered, sharding_shard, sharding_type"
        )


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("event", (CART, "long", 9900)),
        ("snapshot", (CART, "long", 9900)),
        ("rememberedentity", (CART, 1, "e09900")),
        ("shard", (CART, 9990)),
    ],
)
def test_a_deep_page_reads_what_it_shows(root: Client, model: str, key: tuple[Any, ...]) -> None:
    """A comparison of whole keys walks from the type's first row to the page."""
    with CaptureQueriesContext(connection) as captured:
        page = root.get(f"{address(model)}?after={quote(key_text(key))}")
    shown = page.context["cl"].result_list
    assert [row.pk for row in shown] == sorted(row.pk for row in shown)
    assert shown[0].pk > key
    table = page.context["cl"].model._meta.db_table
    read = 0
    for each in captured:
        if f'"{table}"' in each["sql"]:
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {each['sql']}")
                plan = cursor.fetchone()[0][0]["Plan"]
            read += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert 0 < read < 40, read


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("model", BIG)
@pytest.mark.parametrize("query", ["", "?q=nothing-of-that-name", "?q=7777"])
def test_types_without_rows_cost_no_query_each(root: Client, model: str, query: str) -> None:
    with CaptureQueriesContext(connection) as captured:
        assert root.get(address(model) + query).status_code == 200
    assert len([each for each in captured if "sharding_" in each["sql"]]) <= 6


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("entity", ["a/b?c#d e", "<script>alert(1)</script>"])
def test_any_id_has_an_address(root: Client, entity: str) -> None:
    listing = root.get(address("event"), {"q": entity})
    (event,) = listing.context["cl"].result_list
    link = listing.context["cl"].url_for_result(event)
    assert f'href="{link}' in listing.content.decode()
    assert root.get(link).context["original"].entity == entity
    assert "<script>alert" not in listing.content.decode()


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    "key",
    [
        "", "x", "[]", "[1]", "[1,2,3,4]", '[1,"alice",99999999999999999999]', '[99999999999,"alice",1]', '{"a":1}',
        '[1,"a\\u0000",1]', '["x","alice",1]', "[null,null,null]", '[1,"alice",null]', "[" * 5000,
    ],
)  # fmt: skip
def test_a_key_that_is_none_is_said_to_be_missing(root: Client, key: str) -> None:
    assert parse_key(key, Event) is None
    if key:
        assert root.get(address("event", "change", key), follow=True).status_code == 200
    assert root.get(address("event"), {"after": key}, follow=True).status_code == 200


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    "query", ["type=x", "type=99", "type=99999999999", "entity=alice", "o=1", "p=7", "all="]
)
def test_queries_that_make_no_sense_break_nothing(root: Client, query: str) -> None:
    assert root.get(f"{address('event')}?{query}", follow=True).status_code in (200, 400)


def test_other_sites_can_have_it_too() -> None:
    mine = AdminSite("mine")
    register(mine)
    register(mine)
    assert mine.is_registered(models.Cluster)
    assert mine.is_registered(models.Event)


# -- What an address may ask for -------------------------------------------------------------------


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("model", "query"),
    [
        ("event", "payload__startswith={"),
        ("event", "_facets=True&entity=alice&payload__startswith={"),
        ("event", "reply__isnull=0"),
        ("event", "entity=alice"),
        ("event", "type__name=shop.Cart"),
        ("snapshot", "state__contains=book"),
        ("decision", "detail__regex=("),
        ("decision", "action__regex=("),
        ("node", "name__regex=.*"),
    ],
)
def test_only_the_declared_filters_look_into_columns(person: Person, model: str, query: str) -> None:
    """A look-up on a column that is not shown is a question about its content, one character at a
    time.
    """
    page = person(f"view_{model}").get(f"{address(model)}?{query}")
    assert page.status_code == 400


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("model", SHOWN)
def test_facets_count_nothing(root: Client, model: str) -> None:
    with CaptureQueriesContext(connection) as captured:
        page = root.get(f"{address(model)}?_facets=True")
    assert page.status_code == 200
    assert not [each["sql"] for each in captured if "COUNT(" in each["sql"] and " FILTER " in each["sql"]]


@pytest.mark.usefixtures("rows")
def test_decisions_are_filtered_by_what_was_decided(root: Client) -> None:
    page = root.get(f"{address('decision')}?action=node_up")
    assert [each.action for each in page.context["cl"].result_list] == ["node_up"]


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("model", SHOWN)
def test_a_key_that_no_row_can_have_is_no_error(root: Client, model: str) -> None:
    for key in ("\x00", "99999999999999999999", "_00", "x" * 3000):
        for view in ("change", "history"):
            assert root.get(address(model, view, key)).status_code in (302, 404), key


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("query", ['after=[1,"\\ud800",1]', "after=[1,%22\\udfff%22,1]", "q=%ED%A0%80"])
def test_text_that_has_no_encoding_is_no_error(root: Client, query: str) -> None:
    assert root.get(f"{address('event')}?{query}", follow=True).status_code == 200


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("model", ["event", "snapshot"])
def test_lists_do_not_read_what_rows_hold(root: Client, person: Person, model: str) -> None:
    with CaptureQueriesContext(connection) as captured:
        root.get(address(model))
        person(f"view_{model}").get(
            address(model, "change", key_text((CART, "alice", 5 if model == "event" else 2)))
        )
    read = [each["sql"] for each in captured if f'FROM "sharding_{model}"' in each["sql"]]
    assert read
    assert not [sql for sql in read if '"payload"' in sql or '"reply"' in sql or '"state"' in sql]


@pytest.mark.usefixtures("rows")
def test_the_digest_of_arguments_is_shown_with_the_payloads_alone(person: Person) -> None:
    """Its four bytes are enough to find short arguments by trying."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_event SET command = 'add#2d531532'")
    change = address("event", "change", key_text((CART, "alice", 5)))
    viewer = person("view_event", "view_cluster")
    for page in (address("event"), change):
        shown = viewer.get(page).content.decode()
        assert ">add<" in shown
        assert "2d531532" not in shown
    assert "add#2d531532" in person("view_event", "view_payload").get(change).content.decode()
