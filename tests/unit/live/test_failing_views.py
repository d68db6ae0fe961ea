"""Views that fail, hang or fall silent, and pages with too many of them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from sharding_app import EntityFailed
from sharding_app.live import hub as hubs
from sharding_app.live import values
from sharding_app.live.hub import Limits
from sharding_app.live.topics import key_of, topic_of
from tests.unit.live.stage import Auction, Browser, Stage, play, token, until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(hubs, "TEND_SECONDS", 0.02)


def in_language(language: str) -> str:
    return topic_of(Auction.ref("vase"), "current", (), "vase.html", language).token


def test_a_template_that_fails_with_the_last_value_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = 0

    def html_of(topic: Any, value: Any) -> str:
        nonlocal failures
        if value == {"price": 2} and failures < 3:
            failures += 1
            raise OSError("the database is away for a moment")
        return str(value)

    monkeypatch.setattr(values, "html_of", html_of)

    async def scene(stage: Stage) -> None:
        stage.entities.values["vase"] = {"price": 1}
        asked = token("vase", template="vase.html")
        browser = await stage.browser(asked)
        await until(lambda: bool(browser.items))
        stage.entities.change("vase", {"price": 2})
        await until(lambda: len(browser.items) == 3)
        key = key_of(asked)
        assert browser.items[1:] == [{"key": key, "lost": True}, {"key": key, "html": "{'price': 2}"}]
        late = await stage.browser(asked)
        await until(lambda: late.items == browser.items[2:])

    play(scene)


def test_each_form_has_its_turn_while_values_change_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    painted: list[str] = []

    async def scene(stage: Stage) -> None:
        loop = asyncio.get_running_loop()

        def html_of(topic: Any, value: Any) -> str:
            painted.append(topic.language)
            if len(painted) < 40:  # the next value is there before this one is painted
                changed = threading.Event()
                loop.call_soon_threadsafe(stage.entities.change, "vase", {"price": len(painted)})
                loop.call_soon_threadsafe(loop.call_later, 0.01, changed.set)
                changed.wait(10)
            return str(value)

        monkeypatch.setattr(values, "html_of", html_of)
        for language in ("en", "de"):
            await stage.browser(in_language(language))
        await until(lambda: len(painted) >= 40)

    play(scene)
    assert min(painted[4:40].count(language) for language in ("en", "de")) >= 12, painted


def test_a_template_that_hangs_is_lost_and_holds_up_the_others_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hubs, "TEMPLATE_SECONDS", 0.2)
    goes_on = threading.Event()

    def html_of(topic: Any, value: Any) -> str:
        if value == {"price": 2}:
            goes_on.wait(60)
        return str(value)

    monkeypatch.setattr(values, "html_of", html_of)

    async def scene(stage: Stage) -> None:
        entities, painted = ("a", "b", "c"), [f"{{'price': {price}}}" for price in (2, 2, 3)]
        for each in entities:
            stage.entities.values[each] = {"price": 1}
        browsers = [await stage.browser(token(each, template="v.html")) for each in entities]
        await until(lambda: all(each.items for each in browsers))
        try:
            stage.entities.change("a", {"price": 2})
            stage.entities.change("b", {"price": 2})
            stage.entities.change("c", {"price": 3})
            await until(lambda: all("lost" in each.items[-1] for each in browsers[:2]))
        finally:
            goes_on.set()
        await until(lambda: [each.items[-1].get("html") for each in browsers] == painted)

    play(scene)


def test_a_view_is_lost_while_nothing_is_heard_of_its_entity() -> None:
    async def scene(stage: Stage) -> None:
        stage.entities.values["vase"] = {"price": 1}
        asked = token("vase")
        browser = await stage.browser(asked)
        other = await stage.browser(token("jug"))
        await browser.sees({"price": 1})
        stage.entities.silent.add("vase")
        lost = {"key": key_of(asked), "lost": True}
        await browser.sees(lost)
        late = await stage.browser(asked)
        await late.sees(lost)
        stage.entities.silent.clear()
        await browser.sees({"price": 1})
        await late.sees({"price": 1})
        await other.sees({})
        assert len(other.items) == 1
        assert len(browser.items) == 3

    play(scene)


def test_what_changes_behind_a_silence_is_shown() -> None:
    async def scene(stage: Stage) -> None:
        stage.entities.values["vase"] = {"price": 1}
        browser = await stage.browser(token("vase"))
        await browser.sees({"price": 1})
        stage.entities.silent.add("vase")
        await until(lambda: "lost" in browser.items[-1])
        stage.entities.silent.clear()
        stage.entities.change("vase", {"price": 2})
        await browser.sees({"price": 2})

    play(scene)


def test_a_page_with_many_views_gets_those_that_it_may_have() -> None:
    async def scene(stage: Stage) -> None:
        browser = Browser(stage.seat())
        browser.read()
        await stage.hub.watch(browser.seat, [token(f"e{number}") for number in range(60)])
        await until(lambda: len(browser.items) == 60)
        assert sum("value" in each for each in browser.items) == 5
        assert sum(each.get("refused") == "full" for each in browser.items) == 55
        assert not browser.ended

    play(scene, Limits(views=5))


@pytest.mark.parametrize("view", ["current", "secret"])
def test_html_streams_get_html_alone(monkeypatch: pytest.MonkeyPatch, view: str) -> None:
    monkeypatch.setattr(values, "html_of", lambda topic, value: f"<b>{value}</b>")

    async def scene(stage: Stage) -> None:
        stage.entities.values["vase"] = {"price": 1}
        asked = topic_of(Auction.ref("vase"), view, (), "v.html", "en").token
        seat = stage.hub.admit({"headers": []}, frames=False, answers=False)
        assert seat is not None
        stage.hub.attach(seat, asked, (await stage.hub.ask_rights(seat.scope, [asked]))[asked])
        assert await seat.next() == ["<b>{'price': 1}</b>"]
        if view == "current":
            stage.entities.errors = [EntityFailed("broken")]
            stage.entities.change("vase", {"price": 2})
            assert await seat.next() == ["<b>{'price': 2}</b>"]
        else:
            stage.user = "bob"
            assert await seat.next() is None, "the browser asks again, and is told by a status"

    play(scene, Limits(check_seconds=0.05))
