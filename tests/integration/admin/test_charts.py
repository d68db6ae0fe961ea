"""The page of charts: whose figures, of which time, and what it says when there are none."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from sharding_app.admin import views
from sharding_app.dashboard.pages import charts
from sharding_app.dashboard.presenters.trends import TITLES, TYPE_TITLES
from sharding_app.operations.trends import TrendCollector
from tests.support.answering_nodes import FakeNodes, HandClock, collector
from tests.support.cluster_rows import CART, Person
from tests.support.trends import FakeTrends

PAGE = "/admin/sharding/cluster/charts/"
LIVE = "/admin/sharding/cluster/live/"
TYPE = f"/admin/sharding/cluster/types/{CART}/"


@pytest.fixture
def ask() -> FakeTrends:
    return FakeTrends()


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch, rows: None, ask: FakeTrends) -> None:
    clock = HandClock()
    monkeypatch.setattr(views, "collector", collector(FakeNodes(), clock))
    monkeypatch.setattr(charts, "trends", TrendCollector(ask, clock))


def text(page: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.content.decode()))


def test_the_page_needs_the_permission_of_the_dashboard(person: Person, ask: FakeTrends) -> None:
    assert Client().get(PAGE).status_code == 302
    assert person("view_event").get(PAGE).status_code == 403
    assert ask.asked == []
    assert person("view_cluster").get(PAGE).status_code == 200


def test_each_figure_has_a_picture_and_a_table_of_the_same_numbers(root: Client) -> None:
    page = root.get(PAGE).content.decode()
    assert page.count('class="sh-chart-line sh-chart-main"') == len(TITLES)
    assert page.count("<tbody>") >= len(TITLES)
    assert "Commands / s from" in page, "a picture says in words what it shows"
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "Commands / s 30 30 to 30" in words, "three nodes with ten each"
    assert "Time of an append, p99 of the worst node 10 s" in words


@pytest.mark.parametrize(("query", "period"), [("", 10), ("?range=1h", 10), ("?range=24h", 240)])
def test_the_range_is_asked_for(root: Client, ask: FakeTrends, query: str, period: int) -> None:
    assert root.get(PAGE + query).status_code == 200
    assert ask.asked == [period]


@pytest.mark.parametrize("query", ["?range=7d", "?range=1h%00", "?range=<b>"])
def test_another_range_does_not_exist(root: Client, query: str) -> None:
    assert root.get(PAGE + query).status_code == 404


def test_a_node_alone_has_its_own(root: Client) -> None:
    page = root.get(f"{PAGE}?node=n-b")
    assert "Commands / s 10 10 to 10" in text(page)
    assert "of the worst node" not in text(page)


def test_a_node_that_is_gone_or_does_not_answer_is_told_of(root: Client, ask: FakeTrends) -> None:
    assert "or is gone" in text(root.get(f"{PAGE}?node=n-never"))
    ask.silent = {"n-c"}
    other = root.get(f"{PAGE}?range=24h")
    assert "does not answer" in text(other)
    assert "Commands / s 20" in text(other), "the cluster's line is of those that answer"
    assert "or is gone" in text(root.get(f"{PAGE}?range=24h&node=n-c"))


def test_without_answers_the_page_says_why(root: Client, ask: FakeTrends) -> None:
    ask.silent = {"n-a", "n-b", "n-c"}
    assert "No node has answered" in text(root.get(PAGE))
    ask.trouble = "the layer is <away>"
    page = root.get(f"{PAGE}?range=24h")
    assert page.status_code == 200
    assert b"the layer is &lt;away&gt;" in page.content


def test_a_cluster_that_has_just_started_has_no_figures_yet(root: Client, ask: FakeTrends) -> None:
    ask.samples = 0
    page = text(root.get(f"{PAGE}?range=24h"))
    assert "There are no figures of this time yet. The first ones come 4 min after" in page
    assert "Commands / s" not in page


def test_what_an_address_and_a_node_say_is_escaped(root: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_node SET name = '<i>a</i>' WHERE incarnation = 'n-a'")
    page = root.get(PAGE, {"node": '"><script>x</script>'}).content
    assert b"<script>x" not in page
    assert b"<i>a</i>" not in page
    assert b"&lt;i&gt;a&lt;/i&gt;" in page


def test_deaths_elections_and_moves_are_marked(root: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM sharding_decision")
        cursor.execute(
            "INSERT INTO sharding_decision (at, action, subject, detail, term) VALUES"
            " (now() - interval '10 minutes', 'node_dead', 'n-z', '', 1),"
            " (now() - interval '40 minutes', 'coordinator_elected', 'n-a', '', 1),"
            " (now() - interval '5 hours', 'shards_moved', 'shop.Cart', '', 1),"
            " (now() - interval '8 minutes', 'shards_placed', 'shop.Cart', '', 1)"
        )
    mark = re.compile(r'<path class="sh-chart-mark (\w+)" d="(M\d+ 8v96)+"/>')
    hour = [each[0] for each in mark.findall(root.get(PAGE).content.decode())]
    assert hour == ["warn", "bad"] * len(TITLES)
    day = [each[0] for each in mark.findall(root.get(f"{PAGE}?range=24h").content.decode())]
    assert day == ["busy", "warn", "bad"] * len(TITLES)


def test_the_live_part_is_that_of_the_page(root: Client, ask: FakeTrends) -> None:
    root.get(f"{PAGE}?range=24h")
    news = root.get(LIVE, {"page": "charts/?range=24h&node=n-b"})
    assert set(news.json()["parts"]) == {"banner", "charts", "decisions"}
    assert "sh-chart-main" in news.json()["parts"]["charts"]
    assert ask.asked == [240], "viewers share an answer"


def test_the_pages_of_nodes_lead_there(root: Client) -> None:
    page = root.get("/admin/sharding/cluster/nodes/n-a/").content.decode()
    assert '/admin/sharding/cluster/charts/?node=n-a"' in page


def test_the_page_of_a_type_has_its_own(root: Client, ask: FakeTrends) -> None:
    page = root.get(TYPE).content.decode()
    assert (ask.types, ask.asked) == (["shop.Cart"], [10])
    assert page.count('class="sh-chart-line sh-chart-main"') == len(TYPE_TITLES)
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "Events / s 30 30 to 30" in words, "three nodes with ten each"
    assert "Time of an append" not in words
    assert len(re.findall(r'class="sh-chart-line c\d+"', page)) == 3 * len(TYPE_TITLES)


def test_a_node_that_does_not_host_the_type_has_no_line(root: Client, ask: FakeTrends) -> None:
    ask.elsewhere = {"n-c"}
    page = root.get(TYPE).content.decode()
    assert len(re.findall(r'class="sh-chart-line c\d+"', page)) == 2 * len(TYPE_TITLES)
    assert "Events / s 20 20 to 20" in text(root.get(TYPE))


def test_a_day_of_a_type_keeps_the_part_of_its_map(root: Client, ask: FakeTrends) -> None:
    page = root.get(f"{TYPE}?range=24h")
    assert ask.asked == [240]
    assert 'href="?range=1h"' in page.content.decode()
    assert root.get(f"{TYPE}?range=7d").status_code == 404


def test_the_charts_of_a_type_are_live(root: Client, ask: FakeTrends) -> None:
    root.get(f"{TYPE}?range=24h")
    parts = root.get(LIVE, {"page": f"types/{CART}/?range=24h"}).json()["parts"]
    assert "sh-chart-main" in parts["type_charts"]
    assert ask.asked == [240], "viewers share an answer"


def test_a_type_without_figures_says_why(root: Client, ask: FakeTrends) -> None:
    ask.samples = 0
    assert "The first ones come 10 s after" in text(root.get(TYPE))
    ask.samples, ask.silent = 5, {"n-a"}
    assert "Without the figures of node-a" in text(root.get(f"{TYPE}?range=24h"))


def test_nodes_that_cannot_be_asked_leave_the_rest_of_a_types_page(root: Client, ask: FakeTrends) -> None:
    ask.trouble = "the layer is <away>"
    page = root.get(TYPE)
    assert b"the layer is &lt;away&gt;" in page.content
    assert "Shard map" in text(page)
