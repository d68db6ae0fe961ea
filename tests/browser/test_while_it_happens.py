"""What the dashboard shows while things happen: a node that is killed, a site without its servers,
a pause.
"""

from __future__ import annotations

from sharding_app.embedded import OwnRedis
from tests.browser.browser import Browser
from tests.browser.conftest import Visit
from tests.browser.site import Cluster

CART, STATION = "shop.Cart", "weather.Station"
HOMES = "return [...document.querySelectorAll('#sh-map .sh-cell:not(.s-unused)')].map(g => g.lastChild.textContent)"


def homes(browser: Browser) -> set[str]:
    return set(browser.run(HOMES))


def live(browser: Browser) -> str:
    return str(browser.run("return document.querySelector('[data-live-text]').textContent"))


def test_updates_can_be_paused(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("root")
    browser.until(lambda: live(browser) == "live", "live updates")
    button = browser.find("[data-pause]")
    button.click()
    assert live(browser) == "paused"
    button.click()
    browser.until(lambda: live(browser) == "live", "live updates again")


def test_without_a_websocket_the_page_polls(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("root")
    page = f"{three_nodes.root}nodes/"
    browser.before_each_page("window.WebSocket = class { constructor() { throw new Error('none') } }")
    try:
        browser.open(page)
        browser.until(lambda: live(browser) == "polling every 2 s", "the page polls")
    finally:
        browser.forget_what_is_before()
    assert browser.complaints() == []


MUTE = """
  const wait = window.setTimeout;
  // The page's patience with a silent site, made short; other clocks stay as they are.
  window.setTimeout = (job, ms, ...more) => wait(job, ms === 25000 ? 300 : ms, ...more);
  window.opened = 0;
  window.WebSocket = class extends EventTarget {
    constructor(address) {
      super();
      window.opened += 1;
      window.address = address;
      wait(() => this.dispatchEvent(new Event("open")), 0);
    }
    send() { wait(() => this.dispatchEvent(new MessageEvent("message", { data: '{"trouble": "", "parts": {}}' })), 0); }
    close() {}
  };
"""


def test_a_site_that_falls_silent_is_said_to_be_lost(visit: Visit, three_nodes: Cluster) -> None:
    """What is shown may be old: a page that said "live" would hide an incident."""
    browser = visit("root")
    browser.before_each_page(MUTE)
    try:
        browser.open(f"{three_nodes.root}nodes/")
        browser.until(lambda: live(browser) == "live", "one message came")
        browser.until(lambda: live(browser) == "no connection to the site", "and no other one", 10)
        browser.until(lambda: int(browser.run("return window.opened")) > 1, "the page tries again", 10)
        assert str(browser.run("return window.address")).endswith("?site=admin")
    finally:
        browser.forget_what_is_before()
    assert browser.complaints() == []


DEAF = """
  const wait = window.setTimeout;
  window.setTimeout = (job, ms, ...more) => wait(job, ms === 25000 ? 300 : ms, ...more);
  window.WebSocket = class { constructor() { throw new Error("none") } };
  window.asked = 0;
  window.fetch = (_address, { signal }) => new Promise((_resolve, reject) => {
    window.asked += 1;
    signal?.addEventListener("abort", () => reject(signal.reason));
  });
"""


def test_a_site_that_does_not_answer_a_poll_is_said_to_be_lost(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("root")
    browser.before_each_page(DEAF)
    try:
        browser.open(f"{three_nodes.root}nodes/")
        browser.until(lambda: live(browser) == "no connection to the site", "no answer came", 10)
        browser.until(lambda: int(browser.run("return window.asked")) > 1, "the page asks again", 10)
    finally:
        browser.forget_what_is_before()
    assert browser.complaints() == []


RESTARTED = """
  const now = Date.now, began = now();
  // Half a minute of asking is over in a moment.
  Date.now = () => began + (now() - began) * 100;
  window.opened = 0;
  window.WebSocket = class extends EventTarget {
    constructor() {
      super();
      const number = window.opened += 1;
      // The first one works, and ends with the site; the second and third find no site.
      window.setTimeout(() => {
        if (number === 2 || number === 3) return this.dispatchEvent(new Event("close"));
        this.dispatchEvent(new MessageEvent("message", { data: '{"trouble": "", "parts": {}}' }));
        if (number === 1) window.end = () => this.dispatchEvent(new Event("close"));
      }, 0);
    }
    send() {}
    close() {}
  };
"""


def test_a_page_that_has_polled_through_a_restart_of_the_site_goes_back_to_its_socket(
    visit: Visit, three_nodes: Cluster
) -> None:
    browser = visit("root")
    browser.before_each_page(RESTARTED)
    try:
        browser.open(f"{three_nodes.root}nodes/")
        browser.until(lambda: live(browser) == "live", "the first one works")
        browser.run("window.end()")
        browser.until(lambda: int(browser.run("return window.opened")) == 4, "one that works", 20)
        browser.until(lambda: live(browser) == "live", "live updates again")
    finally:
        browser.forget_what_is_before()
    assert browser.complaints() == []


def test_the_map_shows_the_death_of_a_node(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("root")
    browser.open(f"{three_nodes.root}types/{three_nodes.types[CART]}/")
    browser.until(lambda: live(browser) == "live", "live updates")
    browser.until(lambda: len(homes(browser)) == 3, "shards at all three nodes", 30)
    before = homes(browser)
    three_nodes.kill("bob")
    browser.until(lambda: homes(browser) != before, "another picture", 20)
    browser.until(
        lambda: len(homes(browser)) == 2 and homes(browser) < before, "all shards at home again", 10
    )
    browser.open(f"{three_nodes.root}timeline/")
    browser.sees("node dead")
    assert browser.complaints() == []


def test_without_redis_the_cluster_goes_on_and_the_page_says_that_it_is_away(
    visit: Visit, three_nodes: Cluster, own_redis: OwnRedis
) -> None:
    browser = visit("root")
    browser.sees("The cluster is healthy.", 20)
    browser.until(lambda: live(browser) == "live", "live updates")
    own_redis.stop()
    try:
        browser.sees("The channel layer carries no messages for ", 20)
        browser.sees("The cluster is healthy.")
        browser.open(f"{three_nodes.root}types/{three_nodes.types[CART]}/")
        browser.sees("Shard map")
        browser.open(three_nodes.root)
        browser.sees("The cluster is healthy.")
        browser.until(lambda: live(browser) == "live", "it gets news without Redis")
    finally:
        own_redis.start()
    browser.until(lambda: "The channel layer" not in browser.text, "Redis is heard again", 20)
    browser.until(lambda: live(browser) == "live", "live updates")
    assert browser.complaints() == []


def test_without_any_node_the_pages_stay_up_and_say_so(visit: Visit, three_nodes: Cluster) -> None:
    browser = visit("root")
    browser.open(three_nodes.root)
    browser.until(lambda: live(browser) == "live", "live updates")
    names = list(three_nodes.nodes)
    for name in names:
        three_nodes.kill(name)
    station = f"{three_nodes.root}types/{three_nodes.types[STATION]}/"
    # No node is left to take the rows of the dead away: their locks are gone, and that is seen.
    # On a busy machine those that were killed first may have been taken away by the others.
    browser.sees(f"Node {names[-1]} is suspect: it holds neither of its locks in PostgreSQL.")
    browser.open(f"{station}entity/?id=oslo")
    browser.sees("State now, after event 45")
    browser.open(station)
    browser.sees("Shard map")
    browser.open(f"{three_nodes.root}steer/rebalance/")
    browser.find(".sh-plan button[type=submit]").click()
    browser.until(lambda: browser.all(".messagelist .warning"), "it is not said to be done", 20)
    assert browser.complaints() == []
