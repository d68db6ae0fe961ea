"""Live pages in a browser: two pages follow one entity, whose home is killed, and miss nothing."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import quote, urlencode

from tests.browser.browser import Browser
from tests.browser.conftest import Visit
from tests.browser.site import Cluster

numbers = count(1)
REFUSES = "window.WebSocket = class { constructor() { throw new Error('none') } }"


class Lot:
    """A lot of its own for each test."""

    def __init__(self, cluster: Cluster, name: str = "") -> None:
        self.address = f"{cluster.site}lots/{quote(name or f'lot-{next(numbers)}', safe='')}/"

    def bid(self, price: int, by: str = "ann") -> Any:
        data = urlencode({"by": by, "price": price}).encode()
        with urllib.request.urlopen(f"{self.address}bids/", data, timeout=60) as answer:  # noqa: S310
            return json.load(answer)


def shown(browser: Browser, selector: str = "#price") -> str:
    return str(browser.run("return document.querySelector(arguments[0]).textContent.trim()", selector))


def mode(browser: Browser) -> str:
    return str(browser.run("return document.documentElement.dataset.livePage || ''"))


def state(browser: Browser, selector: str) -> str:
    return str(
        browser.run(
            "return document.querySelector(arguments[0]).dataset.liveState", f"{selector} [data-live]"
        )
    )


def shows(browser: Browser, price: int, seconds: float = 30.0) -> None:
    browser.until(lambda: shown(browser) == str(price), f"the price {price}", seconds)


def test_two_pages_go_on_when_the_home_is_killed(visit: Visit, three_nodes: Cluster) -> None:
    browser, lot = visit("viewer"), Lot(three_nodes)
    home = lot.bid(1)["home"]
    browser.open(lot.address)
    assert shown(browser) == "1"
    mark = "window.mark = window.mark || Math.random(); return window.mark"
    tabs = [browser.driver.current_window_handle]
    first = browser.run(mark)
    with browser.second_tab():
        browser.open(lot.address)
        tabs.append(browser.driver.current_window_handle)
        second = browser.run(mark)

        def each_tab(look: Callable[[], object]) -> None:
            for tab in tabs:
                browser.driver.switch_to.window(tab)
                look()

        each_tab(lambda: browser.until(lambda: mode(browser) == "on", "it is connected"))
        for price in range(2, 6):
            lot.bid(price)
            each_tab(partial(shows, browser, price))
        three_nodes.kill(home)
        for price in range(6, 11):
            lot.bid(price)
        each_tab(lambda: shows(browser, 10))
        after = lot.bid(11)
        assert after["home"] not in ("", home)
        each_tab(lambda: shows(browser, 11))
        marks = []
        prices = []

        def look() -> None:
            marks.append(browser.run(mark))
            prices.append(browser.run("return window.prices"))
            browser.until(lambda: shown(browser, "section li:last-child") == "ann 11", "the list too")

        each_tab(look)
        assert marks == [first, second], "neither was loaded again"
        for found in prices:
            assert found == sorted(set(found)), "no price twice, and none goes back"
            assert {2, 3, 4, 5, 10, 11} <= set(found)
        assert browser.complaints() == []


def test_a_page_says_when_the_site_is_away_and_comes_back(visit: Visit, three_nodes: Cluster) -> None:
    browser, lot = visit("root"), Lot(three_nodes)
    lot.bid(1)
    browser.before_each_page(
        "const S = window.WebSocket; window.sockets = []; window.refuse = false;"
        "window.WebSocket = class extends S { constructor(a) { if (window.refuse) a = a.replace('live-pages', 'nothing');"
        " super(a); window.sockets.push(this); } }; window.EventSource = undefined"
    )
    try:
        browser.open(lot.address)
        browser.until(lambda: mode(browser) == "on", "it is connected")
        browser.run("window.refuse = true; window.sockets.at(-1).close()")
        browser.sees("Not connected.")
        assert mode(browser) == state(browser, "#price") == "lost"
        lot.bid(2)
        assert shown(browser) == "1"
        # The third attempt would be by events. This browser has none, and goes on as before.
        browser.until(lambda: browser.run("return window.sockets.length") > 3, "it has tried three times")
        browser.run("window.refuse = false; window.dispatchEvent(new Event('online'))")
        shows(browser, 2)
        assert (mode(browser), state(browser, "#price")) == ("on", "on")
        browser.until(lambda: "Not connected." not in browser.text, "the word is gone")
    finally:
        browser.forget_what_is_before()
        browser.complaints()


def test_without_a_websocket_it_takes_events(visit: Visit, three_nodes: Cluster) -> None:
    browser, lot = visit("root"), Lot(three_nodes)
    browser.before_each_page(REFUSES)
    try:
        browser.open(lot.address)
        browser.until(lambda: mode(browser) == "on", "it is connected", 20)
        lot.bid(7)
        shows(browser, 7)
    finally:
        browser.forget_what_is_before()
    assert browser.complaints() == []


def test_what_a_user_may_not_watch_is_said_and_nothing_runs(visit: Visit, three_nodes: Cluster) -> None:
    """Names and ids are full of markup; the page shows it as text."""
    evil = "\"'><img src=x onerror=window.hit=1>"
    browser, lot = visit("root"), Lot(three_nodes, evil)
    browser.driver.delete_cookie("sessionid")
    lot.bid(1, evil)
    browser.open(lot.address)
    browser.until(lambda: state(browser, "#reserve") == "refused", "the reserve is refused")
    lot.bid(2, evil)
    shows(browser, 2)
    # Each view has news of its own.
    browser.until(lambda: shown(browser, "#last") == evil, "the name")
    browser.until(lambda: shown(browser, "section li:last-child") == f"{evil} 2", "the list")
    assert browser.run("return window.hit") is None
    assert mode(browser) == "on"
    assert browser.complaints() == []
    assert browser.barriers() == []


def test_focus_stays_and_elements_that_come_later_are_followed(visit: Visit, three_nodes: Cluster) -> None:
    browser, lot = visit("root"), Lot(three_nodes)
    browser.open(lot.address)
    browser.until(lambda: mode(browser) == "on", "it is connected")
    browser.find("#note").send_keys("mine")
    browser.run("document.querySelector('#later').append(document.querySelector('#price').cloneNode(true))")
    lot.bid(3)
    browser.until(lambda: shown(browser, "section li") == "ann 3", "the bid is in the list")
    assert browser.run("return [document.activeElement.id, document.activeElement.value]") == ["note", "mine"]
    browser.until(lambda: shown(browser, "#later") == "3", "the later element shows it")
    browser.run("document.querySelector('#later').replaceChildren()")
    lot.bid(4)
    shows(browser, 4)
    assert browser.complaints() == []


def test_more_views_than_one_message_holds_are_watched(visit: Visit, three_nodes: Cluster) -> None:
    browser, lot = visit("root"), Lot(three_nodes)
    lot.bid(1)
    browser.before_each_page(
        "document.addEventListener('DOMContentLoaded', () => { for (let n = 0; n < 40; n++) {"
        " const view = document.createElement('i'); view.className = 'more';"
        " view.dataset.live = 'x'.repeat(2000) + ':' + String(n).padStart(16, '0'); document.body.prepend(view); } })"
    )
    refused = "return document.querySelectorAll('.more[data-live-refused=unknown]').length"
    try:
        browser.open(lot.address)
        browser.until(lambda: browser.run(refused) == 40, "the site knows none of them")
        lot.bid(2)
        shows(browser, 2)
        assert mode(browser) == "on"
    finally:
        browser.forget_what_is_before()
    assert browser.complaints() == []
