"""Headless Chromium as the tests need it: signed in, in light or dark, wide or narrow, and
listened to.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Literal, TypeVar

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.support.slack import SLACK

T = TypeVar("T")
Theme = Literal["light", "dark"]
WIDE, PHONE = (1280, 900), (375, 812)
SECONDS = 10.0
MOST_TABS = 80
MORE_OF_THE_SAME = "[data-map-table] tr:nth-child(n+20), #sh-map g:nth-child(n+60)"
"""Of a thousand shards axe need not look at each: it would take ten seconds."""


def find_chromium() -> tuple[str, str]:
    """Chromium and its driver. Without them the tests cannot run: that is an error where CI says
    that they must.
    """
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if browser and driver:
        return browser, driver
    reason = "no Chromium with its chromedriver on the PATH: on Debian, .ci/browser installs them"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Browser:
    """One tab."""

    def __init__(self) -> None:
        browser, driver = find_chromium()
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for argument in (
            "headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "force-color-profile=srgb", "lang=en",
        ):  # fmt: skip
            options.add_argument(f"--{argument}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.driver.set_script_timeout(30 * SLACK)
        self._axe = files("axe_core_python").joinpath("axe.min.js").read_text()
        self._script = ""
        self._command("Emulation.setScrollbarsHidden", hidden=True)
        self.wide()
        self.theme("light")

    def close(self) -> None:
        self.driver.quit()

    # -- How it looks ------------------------------------------------------------------------------

    def wide(self) -> None:
        self.size(WIDE)

    def phone(self) -> None:
        self.size(PHONE, mobile=True)

    def size(self, size: tuple[int, int], *, mobile: bool = False) -> None:
        self._command(
            "Emulation.setDeviceMetricsOverride",
            width=size[0],
            height=size[1],
            deviceScaleFactor=1,
            mobile=mobile,
        )

    def theme(self, theme: Theme) -> None:
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self._command("Emulation.setEmulatedMedia", features=features)

    def _command(self, command: str, /, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, parameters)

    # -- Where it is -------------------------------------------------------------------------------

    def sign_in(self, site: str, session: str) -> None:
        """Be the one whom that session belongs to."""
        self._command("Network.enable")
        self._command("Network.setCookie", name="sessionid", value=session, url=site)

    def open(self, address: str) -> None:
        self.driver.get(address)

    def at_once(self) -> None:
        """Let Django's own colour transitions take no time: what is hidden would be caught in the
        middle of one.
        """
        self.run(
            "const s = new CSSStyleSheet(); s.replaceSync('* { transition: none !important }');"
            "document.adoptedStyleSheets = [s]"
        )

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def tab_to(self, text: str) -> str:
        """Press Tab until what has that text in the dashboard has the focus; return how one sees
        that it has.
        """
        for _ in range(MOST_TABS):
            self.press(Keys.TAB)
            if (
                self.run(
                    "const e = document.activeElement; return e.closest('#sharding') && e.innerText.trim()"
                )
                == text
            ):
                style = "const s = getComputedStyle(document.activeElement);"
                shown = "return `${s.outlineStyle === 'none' ? '' : 'outline'} ${s.textDecorationLine}`"
                return str(self.run(style + shown))
        raise AssertionError(f"no Tab leads to {text!r}")

    def before_each_page(self, script: str) -> None:
        """Run that before a page's own scripts, from now on."""
        self._script = self._command("Page.addScriptToEvaluateOnNewDocument", source=script)["identifier"]

    def forget_what_is_before(self) -> None:
        self._command("Page.removeScriptToEvaluateOnNewDocument", identifier=self._script)

    @contextmanager
    def second_tab(self) -> Iterator[None]:
        first = self.driver.current_window_handle
        self.driver.switch_to.new_window("tab")
        try:
            yield
        finally:
            self.driver.close()
            self.driver.switch_to.window(first)

    # -- What it shows -----------------------------------------------------------------------------

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def link(self, text: str) -> WebElement:
        return self.driver.find_element(By.PARTIAL_LINK_TEXT, text)

    @property
    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, condition: Callable[[], T], what: str, seconds: float = SECONDS) -> T:
        """Wait for a condition, also across pages."""
        seconds *= SLACK
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:g} s: {what}; the page says:\n{self.text[:2000]}")
            time.sleep(0.03)
        return found

    def sees(self, text: str, seconds: float = SECONDS) -> None:
        self.until(lambda: text in self.text, f"{text!r} on the page", seconds)

    # -- What it complains of ----------------------------------------------------------------------

    def complaints(self) -> list[str]:
        """Whatever the console has got since the last look: errors, and what the policy has
        refused.
        """
        log: list[dict[str, str]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call] # selenium's
        found = [f"{each['level']} {each['message']}" for each in log]
        # That icon is Chromium's own wish; no page names it.
        return [each for each in found if "/favicon.ico" not in each]

    def barriers(self, *rules: str) -> list[str]:
        """What axe finds to be serious or critical, of all rules or of these."""
        if not self.run("return 'axe' in window"):
            self.run(self._axe)
        only = {"runOnly": list(rules)} if rules else {}
        options = {**only, "resultTypes": ["violations"]}
        done = self.driver.execute_async_script(
            "const done = arguments[2];"
            "for (const each of document.querySelectorAll(arguments[0])) each.remove();"
            "axe.run(document, arguments[1]).then(done, (e) => done({trouble: String(e)}))",
            MORE_OF_THE_SAME,
            options,
        )
        assert "trouble" not in done, done["trouble"]
        return [
            f"{each['id']}: {node['target']} {node.get('failureSummary', '')}"
            for each in done["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"][:3]
        ]

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(self.run("const e = document.documentElement; return e.scrollWidth - e.clientWidth"))
