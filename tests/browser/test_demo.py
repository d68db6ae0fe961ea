"""The demo as `runcluster` starts it: people bid, and a node is killed at a click in between."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import psycopg
import pytest

from sharding_app.embedded.ports import free_port
from tests.browser.browser import Browser
from tests.browser.site import SETTINGS
from tests.support.live import Live, Program

HOMES = (
    "SELECT DISTINCT n.name FROM sharding_shard s JOIN sharding_node n ON n.incarnation = s.home"
    " JOIN sharding_event e ON e.type_id = s.type_id AND e.shard = s.shard JOIN sharding_type t ON t.id = e.type_id"
    " WHERE t.name = 'auctions.Auction'"
)
BIDS = (
    "SELECT count(*) FILTER (WHERE t.name = 'auctions.Bidder' AND e.name = 'Held'),"
    " count(*) FILTER (WHERE t.name = 'auctions.Auction' AND e.name = 'BidPlaced')"
    " FROM sharding_event e JOIN sharding_type t ON t.id = e.type_id"
)

PATIENCE = 60.0
DEATHS = "SELECT detail FROM sharding_decision WHERE action = 'node_dead'"


class Demo:
    def __init__(self, live: Live, program: Program, port: int) -> None:
        self.live = live
        self.program = program
        self.site = f"http://127.0.0.1:{port}/"


@pytest.fixture
def demo(live_servers: Live) -> Iterator[Demo]:
    port = free_port()
    command = ["runcluster", "--nodes", "2", "--port", str(port), "--noreload"]
    with live_servers.empty_database() as live, live.program(*command, **SETTINGS) as program:
        program.wait_line("The cluster is up")
        yield Demo(live, program, port)


def bid(browser: Browser, name: str, amount: int) -> None:
    field = browser.find("[name=name]")
    field.clear()
    field.send_keys(name)
    browser.find("[name=amount]").send_keys(str(amount))
    browser.find("form button").click()
    browser.sees(f"{amount}.00\n{name} leads", PATIENCE)


def numbers(browser: Browser) -> list[str]:
    """Acknowledged bids, and those in the journal."""
    script = "return ['acknowledged', 'journal'].map(id => document.getElementById(id).textContent)"
    found: list[str] = browser.run(script)
    return found


def click(browser: Browser, selector: str) -> None:
    """Click the button that the page shows now: it renews its buttons."""
    browser.run("document.querySelector(arguments[0]).click()", selector)


def looks_right(browser: Browser) -> None:
    for theme in ("light", "dark"):
        browser.theme(theme)
        browser.wide()
        assert browser.overflow() == 0
        browser.phone()
        assert browser.overflow() == 0
        assert browser.barriers() == []
    browser.wide()


def test_bids_go_on_when_a_node_is_killed_at_a_click(chromium: Browser, demo: Demo) -> None:
    """The numbers of both pages and of the journal agree."""
    browser = chromium
    browser.open(demo.site)
    browser.find("[name=title]").send_keys("A clock")
    browser.find("form button").click()
    browser.sees("no bid yet")
    page = browser.driver.current_url
    with psycopg.connect(demo.live.database_url, autocommit=True) as journal, browser.second_tab():
        browser.open(page)
        bid(browser, "bob", 20)
        bid(browser, "ann", 30)
        browser.open(f"{demo.site}cluster/")
        browser.until(lambda: numbers(browser) == ["2", "2"], "two bids")
        [(home,)] = journal.execute(HOMES).fetchall()
        click(browser, f"#kill-{home}")
        browser.sees(f"{home} (process ", PATIENCE)
        browser.open(page)
        bid(browser, "bob", 40)
        bid(browser, "bob", 50)
        browser.sees("Credit\n10,000.00\nHeld for bids\n50.00\nBids\n3", PATIENCE)
        assert journal.execute(BIDS).fetchall() == [(4, 4)]
        browser.open(f"{demo.site}cluster/")
        browser.until(lambda: numbers(browser) == ["4", "4"], "all bids")
        browser.sees("Each acknowledged bid is in the journal.")
        assert (home,) in journal.execute(DEATHS).fetchall()
        assert len(browser.all(".events li")) > 3
        browser.until(
            lambda: len(browser.all("#nodes .state.good")) == 2, "both nodes are up again", PATIENCE
        )
        click(browser, f"#drain-{home}")
        browser.until(
            lambda: len(browser.all("#nodes article")) == 1, "it has left, and stays away", PATIENCE
        )
        click(browser, "#nodes [name=kill]")
        browser.sees("is the last node that runs. Until it is up again, no entity answers", PATIENCE)
        looks_right(browser)
        assert [each for each in browser.complaints() if "409" not in each] == []
    browser.sees("50.00\nbob leads", PATIENCE)
    browser.sees("4 bids")
    browser.find("[name=name]").send_keys("ann")
    browser.find("[name=amount]").send_keys("20000")
    browser.find("form button").click()
    browser.sees("Give an amount such as 12.50")
    looks_right(browser)
    assert [each for each in browser.complaints() if "400" not in each] == []
    said = len(demo.program.lines)
    assert demo.program.stop(signal.SIGINT) == 0
    told = demo.program.lines[said:]
    assert told[-1] == "All processes have ended."
    assert not [line for line in told if "not delivered" in line], "pages that follow are no lost commands"
