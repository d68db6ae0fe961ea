"""Each page, in light and dark and on a phone: what it shows, no complaint of the browser's, no
barrier that axe finds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.browser.browser import Browser
from tests.browser.conftest import Visit
from tests.browser.site import Cluster

CART, STATION, FORECAST, BALLOON = "shop.Cart", "weather.Station", "weather.Forecast", "weather.Balloon"


@dataclass(frozen=True)
class Page:
    where: str
    says: str
    "What it has to show."


PAGES = {
    "overview": Page("", "Coordinator"),
    "nodes": Page("nodes/", "Loop late"),
    "node": Page("nodes/{node}/", "Order of joining"),
    "a node that has gone": Page("nodes/n-left/", "The node with the incarnation n-left has gone."),
    "types": Page("types/", STATION),
    "a thousand shards": Page("types/{shop.Cart}/", "Table of these 1000 shards"),
    "shard": Page("types/{weather.Station}/shards/34/", "Shard 34 of weather.Station"),
    "find": Page("types/{weather.Station}/entity/", "Open"),
    "entity": Page("types/{weather.Station}/entity/?id=oslo&at=31", "State after event 31"),
    "entity with a stored state": Page("types/{weather.Forecast}/entity/?id=bergen", "Rain, as always."),
    "entity that failed": Page("types/{weather.Station}/entity/?id=bergen", "ZeroDivisionError"),
    "entity without a history": Page("types/{weather.Station}/entity/?id=atlantis", "has stored nothing under this id"),
    "event that cannot be read": Page("types/{weather.Station}/entity/?id={garbled}", "UnreadableEvent"),
    "type without code": Page("types/{weather.Balloon}/", "not installed here"),
    "entity without code": Page("types/{weather.Balloon}/entity/?id=red", "is not installed here, so its events"),
    "singletons": Page("singletons/", "weather.bell"),
    "workers": Page("workers/", "weather.balloons"),
    "messages": Page("messages/?state=parked", "weather.Station malmo"),
    "messages of an entity": Page("types/{weather.Station}/entity/?id=malmo", "Messages and timers"),
    "a message": Page("messages/one/?id=seed-parked", "the reference is gone"),
    "a message that is gone": Page("messages/one/?id=seed-never", "No message or timer with this id waits"),
    "plan for messages": Page("steer/retry/?all=1&state=parked&type=&entity=malmo", "What will happen"),
    "projections": Page("projections/", "weather.Extremes"),
    "projection": Page("projections/one/?name=weather.Extremes&version=1", "the thermometer is stuck"),
    "plan for a projection": Page("steer/projection-skip/?name=weather.Extremes&version=1&type=weather.Station&entity=malmo&number=4", "What will happen"),
    "charts": Page("charts/", "Time of a command, p99"),
    "charts of a node": Page("charts/?range=24h&node={node}", "The last day"),
    "charts of a type": Page("types/{weather.Station}/", "Events / s"),
    "a day of a type": Page("types/{shop.Cart}/?range=24h", "Over time"),
    "load": Page("load/", "Slowest commands"),
    "database": Page("database/", "sharding_remembered"),
    "timeline": Page("timeline/", "coordinator elected"),
    "trouble": Page("trouble/", "the handler raised"),
    "what operators did": Page("history/", "Actions of operators"),
    "plan": Page("steer/drain/?target={node}", "What will happen"),
}  # fmt: skip
OF_A_FAILURE = {"entity that failed", "trouble"}
FIRST_FIGURES_SECONDS = 40
"""A node's charts begin with its second reading, and show a slot when that is over."""
TABLES = (
    "event",
    "snapshot",
    "shard",
    "node",
    "entitytype",
    "decision",
    "rememberedentity",
    "lease",
)
DJANGOS_OWN = "label-title-only"
"""The search field of every list in Django's admin is labelled by a picture."""


def address(cluster: Cluster, browser: Browser, where: str) -> str:
    """The page's address, with the numbers and names that hold here."""
    browser.open(cluster.root)
    node = str(browser.find("th .sh-home").get_attribute("href")).rstrip("/").rpartition("/")[2]
    found = where.replace("{node}", node).replace("{garbled}", cluster.garbled)
    for name, number in cluster.types.items():
        found = found.replace(f"{{{name}}}", str(number))
    return cluster.root + found


def in_every_light(browser: Browser, look: Callable[[], list[str]]) -> list[str]:
    """What is found in light, in dark, and on a phone."""
    found = look()
    browser.at_once()
    browser.theme("dark")
    found += [f"in the dark: {each}" for each in browser.barriers("color-contrast")]
    browser.phone()
    if (wide := browser.overflow()) > 0:
        found.append(f"on a phone: {wide} pixels too wide")
    return found + browser.complaints()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_right_in_every_light(name: str, visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("root")
    page = PAGES[name]
    if name in OF_A_FAILURE:
        three_nodes.fails()
    browser.open(address(three_nodes, browser, page.where))
    browser.sees(page.says, FIRST_FIGURES_SECONDS)
    assert in_every_light(browser, browser.barriers) == []


@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_the_admin_is_right_too(table: str, visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("root")
    browser.open(f"{three_nodes.site}admin/sharding/{table}/")
    browser.sees("Home")

    def look() -> list[str]:
        return [each for each in browser.barriers() if not each.startswith(DJANGOS_OWN)]

    assert in_every_light(browser, look) == []


def test_what_does_not_exist_is_said_on_a_page_of_the_dashboard(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("root")
    browser.open(f"{three_nodes.root}types/99/")
    browser.sees("The cluster knows no entity type of this number.")
    assert all("404" in each for each in browser.complaints())
    assert browser.barriers() == []


def test_the_map_has_a_square_for_each_shard_and_a_table_behind_it(
    visit: Visit, three_nodes: Cluster
) -> None:
    browser = visit("root")
    browser.open(f"{three_nodes.root}types/{three_nodes.types[CART]}/")
    assert len(browser.all("#sh-map [data-shard]")) == 1000
    browser.find(".sh-details summary").click()
    rows = browser.run(
        "return [...document.querySelectorAll('[data-map-table] tbody tr')].map(r => r.innerText)"
    )
    assert len(rows) == 1000
    used = browser.run("return document.querySelectorAll('#sh-map .sh-cell:not(.s-unused)').length")
    assert used == sum("never used" not in row for row in rows) > 100


def test_a_slider_leads_through_an_entitys_history(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("root")
    browser.open(f"{three_nodes.root}types/{three_nodes.types[STATION]}/entity/?id=oslo")
    browser.sees("State now, after event 45")
    browser.find('a[rel="prev"]').click()
    browser.sees("State after event 44")
    browser.run(
        "const s = document.getElementById('sh-at'); s.value = 4;"
        "for (const e of ['input', 'change']) s.dispatchEvent(new Event(e, {bubbles: true}))"
    )
    browser.sees("State after event 4")
    state = browser.run("return document.querySelector('#sh-state').closest('section').innerText")
    assert "storm" in state
    assert "-3.5" in state
    assert browser.complaints() == []


def test_payloads_are_hidden_from_those_who_may_not_see_them(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("viewer")
    browser.open(f"{three_nodes.root}types/{three_nodes.types[STATION]}/entity/?id=oslo")
    browser.sees("You have no permission to see the content of events and states.")
    assert "storm" not in browser.text
    assert "celsius" not in browser.driver.page_source
    browser.open(f"{three_nodes.root}messages/one/?id=seed-parked")
    browser.sees("You have no permission to see the content of messages.")
    assert "hail" not in browser.driver.page_source
    assert "reference" not in browser.driver.page_source


def test_a_stranger_sees_nothing(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("stranger")
    for where in ("", "live/", "steer/rebalance/", "history/"):
        browser.open(three_nodes.root + where)
        assert "403 Forbidden" in browser.text


def test_the_dashboard_can_be_used_by_keyboard_alone(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("root")
    browser.open(three_nodes.root)
    reached = browser.tab_to("Entity types")
    assert "outline" in reached or "underline" in reached, "what has the focus can be seen"
    browser.press("\ue007")
    browser.until(lambda: browser.driver.current_url.endswith("/types/"), "the types' page")
    browser.tab_to(CART)
    browser.press("\ue007")
    browser.sees("Shard map")
    browser.tab_to("Table of these 1000 shards")
    browser.press("\ue007")
    browser.until(lambda: browser.find("[data-map-table]").is_displayed(), "the table")
    browser.tab_to("0")
    browser.press("\ue007")
    browser.sees("Shard 0 of shop.Cart")
