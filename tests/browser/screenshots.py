"""Pictures of the dashboard for the documentation: `python -m tests.browser.screenshots` writes
docs/images anew.
"""

from __future__ import annotations

import base64
from pathlib import Path

from tests.browser.browser import Browser, Theme
from tests.browser.site import Cluster
from tests.browser.standing import standing, traffic
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
        (folder / f"{name}.png").write_bytes(base64.b64decode(browser.driver.get_screenshot_as_base64()))


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with standing(carts=2000) as cluster, traffic(cluster, RATE):
        browser = Browser()
        try:
            take(browser, cluster, IMAGES)
        finally:
            browser.close()
    for picture in sorted(IMAGES.glob("*.png")):
        print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
