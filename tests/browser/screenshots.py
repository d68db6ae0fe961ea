"""Pictures for the documentation: `python -m tests.browser.screenshots` writes docs/images anew,
and with `dashboard` or `demo` those of one alone.
"""

from __future__ import annotations

import argparse
import base64
from pathlib import Path

from sharding_app.embedded.ports import free_port
from tests.browser.browser import Browser, Theme
from tests.browser.site import Cluster
from tests.browser.standing import servers, standing, traffic
from tests.support.live import ROOT

IMAGES = ROOT / "docs" / "images"
RATE = 300
PAGE = (1120, 760)
SHOTS: tuple[tuple[str, str, Theme, bool, str], ...] = (
    ("overview", "", "light", False, "Latency"),
    ("overview-dark", "", "dark", False, "Latency"),
    ("overview-phone", "", "light", True, "Latency"),
    ("shard-map", "types/{shop.Cart}/", "light", False, "Shard map"),
    ("shard-map-dark", "types/{shop.Cart}/", "dark", False, "Shard map"),
    ("entity", "types/{weather.Station}/entity/?id=oslo&at=31", "light", False, "State after event 31"),
    ("timeline", "timeline/", "light", False, "Decisions"),
    ("drops", "trouble/", "light", False, "the handler raised"),
    ("steer", "steer/drain/?target={node}", "light", False, "What will happen"),
)
"""Name, page, theme, whether on a phone, and what it shows when it is ready."""

TALL = (1120, 1180)
BIDS = "const r = document.querySelector('[name=rate]'); r.value = 40; r.form.requestSubmit()"
BARS = 40


def shoot(browser: Browser, folder: Path, name: str) -> None:
    (folder / f"{name}.png").write_bytes(base64.b64decode(browser.driver.get_screenshot_as_base64()))


def take(browser: Browser, cluster: Cluster, folder: Path) -> None:
    browser.sign_in(cluster.site, cluster.sessions["root"])
    browser.open(cluster.root)
    browser.run("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")
    browser.until(lambda: len(browser.all(".sh-spark polyline")) >= 3, "charts")
    # A chart of two points is none.
    points = "return document.querySelector('.sh-spark polyline').getAttribute('points').split(' ').length"
    browser.until(lambda: int(browser.run(points)) >= 30, "charts of half a minute", 60)
    node = str(browser.find("th .sh-home").get_attribute("href")).rstrip("/").rpartition("/")[2]
    for name, where, theme, phone, ready in SHOTS:
        address = where.replace("{node}", node)
        for each, number in cluster.types.items():
            address = address.replace(f"{{{each}}}", str(number))
        browser.theme(theme)
        browser.phone() if phone else browser.size(PAGE)
        browser.open(cluster.root + address)
        browser.sees(ready)
        browser.at_once()
        browser.until(lambda: not browser.all("#sh-live[hidden]"), "news")
        shoot(browser, folder, name)


def take_demo(browser: Browser, site: str, folder: Path) -> None:
    """Let bots bid, and kill a node."""
    browser.size(TALL)
    browser.open(f"{site}cluster/")
    browser.run(BIDS)
    browser.until(lambda: len(browser.all(".chart rect")) >= BARS, "a chart", 120)
    browser.run("document.querySelector('#kill-node-2').click()")
    browser.sees("node dead", 30)
    browser.until(lambda: len(browser.all("#nodes .state.good")) == 3, "all nodes are up", 60)
    shoot(browser, folder, "demo-cluster")
    browser.theme("dark")
    browser.phone()
    shoot(browser, folder, "demo-phone")
    browser.theme("light")
    browser.size(PAGE)
    browser.open(site)
    browser.until(lambda: len(browser.all("time[data-closes]")) >= 6, "open auctions", 60)
    shoot(browser, folder, "demo-auctions")


def dashboard(browser: Browser) -> None:
    with standing(carts=2000) as cluster, traffic(cluster, RATE):
        take(browser, cluster, IMAGES)


def demo(browser: Browser) -> None:
    port = free_port()
    command = ["runcluster", "--noreload", f"--port={port}"]
    with (
        servers() as live,
        live.program(*command, DJANGO_SETTINGS_MODULE="project.settings.demo") as program,
    ):
        program.wait_line("The cluster is up")
        take_demo(browser, f"http://127.0.0.1:{port}/", IMAGES)


SUBJECTS = {"dashboard": dashboard, "demo": demo}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subject", nargs="?", choices=SUBJECTS)
    asked = parser.parse_args().subject
    IMAGES.mkdir(exist_ok=True)
    for subject in [asked] if asked else SUBJECTS:
        browser = Browser()
        try:
            SUBJECTS[subject](browser)
        finally:
            browser.close()
    for picture in sorted(IMAGES.glob("*.png")):
        print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
