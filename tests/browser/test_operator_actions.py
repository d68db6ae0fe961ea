"""Steering: what each action does to a real cluster, for those who may and for those who may not;
and two at once.
"""

from __future__ import annotations

from urllib.request import urlopen

import pytest

from sharding_app.protocol.ids import shard_of
from tests.browser.browser import Browser
from tests.browser.conftest import Visit
from tests.browser.site import Cluster

CART, STATION = "shop.Cart", "weather.Station"
ACTIONS = {
    "rebalancer": "steer/rebalance/",
    "mover": "steer/move/?type={type}&shard=34",
    "drainer": "steer/drain/?target={node}",
    "closer": "steer/shutdown/?target={node}",
    "stopper": "steer/restart/?type={type}&entity=oslo",
    "retrier": "steer/retry/?message=seed-parked",
    "discarder": "steer/discard/?message=seed-parked",
}
"""For each action the one person who may take it."""


def node_page(browser: Browser, cluster: Cluster, name: str) -> str:
    browser.open(f"{cluster.root}nodes/")
    browser.until(lambda: any(name in each.text for each in browser.all("th .sh-home")), f"node {name}")
    link = next(each for each in browser.all("th .sh-home") if name in each.text)
    return str(link.get_attribute("href"))


def confirm(browser: Browser, button: str, title: str) -> None:
    """Press a button of a page, read the plan, and confirm it."""
    browser.link(button).click()
    browser.sees("What will happen")
    browser.find(".sh-plan button[type=submit]").click()
    browser.until(lambda: browser.all(".messagelist .success"), f"{title!r} is done")
    assert title in browser.find(".messagelist .success").text
    assert browser.complaints() == []


@pytest.mark.parametrize("person", ["viewer", *ACTIONS])
def test_each_may_do_what_is_theirs_alone(person: str, visit: Visit, three_nodes: Cluster) -> None:
    browser = visit(person)
    node = node_page(browser, three_nodes, "cyd").rstrip("/").rpartition("/")[2]
    pages = (
        "",
        f"nodes/{node}/",
        f"types/{three_nodes.types[STATION]}/shards/34/",
        "messages/one/?id=seed-parked",
    )
    entity = f"types/{three_nodes.types[STATION]}/entity/?id=oslo"
    offered: set[str] = set()
    for page in (*pages, entity):
        browser.open(three_nodes.root + page)
        links = (str(each.get_attribute("href")) for each in browser.all(".sh-actions a"))
        offered |= {link.removeprefix(three_nodes.root).partition("?")[0] for link in links}
    mine = ACTIONS.get(person, "").partition("?")[0]
    assert (mine in offered) == bool(mine)
    for whose, action in ACTIONS.items():
        where = action.format(type=three_nodes.types[STATION], node=node)
        assert whose == person or where.partition("?")[0] not in offered
        browser.open(three_nodes.root + where)
        assert ("What will happen" in browser.text) == (whose == person)
        assert ("403 Forbidden" in browser.text) == (whose != person)


def test_rebalancing_is_paused_and_goes_on(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("rebalancer")
    browser.open(three_nodes.root)
    confirm(browser, "Rebalance now", "Rebalance now")
    confirm(browser, "Pause rebalancing", "Pause rebalancing")
    browser.until(lambda: "Resume rebalancing…" in browser.text, "the other button")
    confirm(browser, "Resume rebalancing", "Resume rebalancing")


def test_a_shard_is_moved(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("mover")
    browser.open(f"{three_nodes.root}types/{three_nodes.types[STATION]}/shards/34/")

    def home() -> str:
        return browser.find(".sh-facts .sh-home").text

    before = home()
    confirm(browser, "Move to another node", "Move shard 34 of weather.Station")
    browser.until(lambda: browser.all(".sh-facts .sh-home") and home() != before, "another home")
    browser.sees("away for")


def test_an_entity_is_restarted_and_passivated(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("stopper")
    with urlopen(f"{three_nodes.site}carts/alice/"):  # noqa: S310 - our own site: the cart is in memory now
        cart = f"{three_nodes.root}types/{three_nodes.types[CART]}/"
    browser.open(f"{cart}entity/?id=alice")
    confirm(browser, "Restart", "Restart shop.Cart alice")
    browser.sees("State now, after event 3")
    confirm(browser, "Passivate", "Passivate shop.Cart alice")
    browser.open(f"{cart}shards/{shard_of('alice', 1000)}/")
    members = "return document.querySelector('[data-part=shard_members]').innerText"
    browser.until(lambda: "alice" not in browser.run(members), "it has left memory")


def test_a_node_is_drained_and_taken_into_use_again(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("drainer")
    page = node_page(browser, three_nodes, "cyd")
    browser.open(page)
    confirm(browser, "Drain", "Drain cyd")

    def shards() -> str:
        return str(browser.run("return document.querySelector('.sh-facts dd').textContent"))

    browser.until(lambda: shards() == "0", "all shards handed over", 20)
    confirm(browser, "End drain", "End the drain of cyd")


def test_messages_are_retried_discarded_and_run_before_their_time(visit: Visit, three_nodes: Cluster) -> None:
    """The nodes have them no more than a moment later: they are told."""
    browser = visit("root")
    listed, station = f"{three_nodes.root}messages/", f"types/{three_nodes.types[STATION]}/entity/?id="

    def choose(page: str, message: str, button: str, title: str) -> None:
        browser.open(page)
        browser.find(f"tr[data-row={message}] input").click()
        next(each for each in browser.all(".sh-actions button") if button in each.text).click()
        browser.sees("What will happen")
        browser.find(".sh-plan button[type=submit]").click()
        browser.until(lambda: browser.all(".messagelist .success"), f"{title!r} is done")
        assert f"{title}: done" in browser.find(".messagelist .success").text

    def state(entity: str, expected: str) -> None:
        def there() -> bool:
            browser.open(f"{three_nodes.root}{station}{entity}")
            return expected in browser.text

        browser.until(there, f"{entity}: {expected}")

    parked = f"{listed}?state=parked"
    choose(parked, "seed-unwanted", "Discard", "Discard a message of weather.Station lund")
    choose(parked, "seed-again", "Retry", "Retry a message of weather.Station lund")
    state("lund", "State now, after event 1")
    browser.open(f"{listed}?entity=malmo")
    timer = str(browser.find("tbody tr[data-row] input[name=message]").get_attribute("value"))
    browser.open(f"{listed}one/?id={timer}")
    confirm(browser, "Run now", "Run the timer")
    state("malmo", "State now, after event 1")
    browser.open(parked)
    assert [str(each.get_attribute("data-row")) for each in browser.all("tr[data-row^=seed-]")] == [
        "seed-parked"
    ]
    assert browser.complaints() == []


def test_two_browsers_that_steer_at_once_are_both_told_what_became_of_it(
    visit: Visit, three_nodes: Cluster
) -> None:
    browser = visit("root")
    where = f"{three_nodes.root}steer/move/?type={three_nodes.types[STATION]}&shard=34"
    browser.open(where)
    browser.sees("What will happen")
    with browser.second_tab():
        browser.open(where)
        browser.find(".sh-plan button[type=submit]").click()
        browser.until(lambda: browser.all(".messagelist .success"), "the first one's success")
        browser.sees("away for")
    browser.find(".sh-plan button[type=submit]").click()
    # The plan led to the node where the shard lives by now.
    browser.until(lambda: browser.all(".messagelist li, .sh-banner[role=alert]"), "an answer in words")
    assert "Move" in browser.text
    browser.open(f"{three_nodes.root}history/")
    browser.sees("Move shard 34 of weather.Station")


def test_a_node_is_shut_down_from_its_page(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("closer")
    browser.open(node_page(browser, three_nodes, "cyd"))
    confirm(browser, "Shut down", "Shut cyd down")
    assert three_nodes.nodes["cyd"].ended() == 0
    browser.until(lambda: len(browser.all("th .sh-home")) == 2, "two nodes are left")
