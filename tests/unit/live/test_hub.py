"""The hub of live views: one subscription for all browsers, and each browser finds the latest."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sharding_app import BufferFull, EntityFailed, Unavailable
from sharding_app.live import hub as hubs
from sharding_app.live import values
from sharding_app.live.hub import Limits
from sharding_app.live.topics import key_of
from tests.unit.live.stage import Browser, Stage, play, token, until


def test_one_subscription_feeds_all_browsers_and_ends_with_the_last() -> None:
    async def scene(stage: Stage) -> None:
        stage.entities.values["vase"] = {"price": 1}
        browsers = [await stage.browser(token("vase")) for _ in range(300)]
        for each in browsers:
            await each.sees({"price": 1})
        asked = stage.entities.asked
        stage.entities.change("vase", {"price": 2})
        for each in browsers:
            await each.sees({"price": 2})
        assert stage.entities.asked == asked + 1
        assert len(stage.entities.following) == 1
        for each in browsers[1:]:
            stage.hub.leave(each.seat)
        assert len(stage.entities.following) == 1
        stage.hub.leave(browsers[0].seat)
        await until(lambda: not stage.entities.following)
        assert not stage.hub.watches

    play(scene)


def test_one_browser_watches_several_views_and_forgets_one() -> None:
    async def scene(stage: Stage) -> None:
        browser = await stage.browser(token("vase"), token("jug"), token("vase", "bid_of", "ann"))
        await until(lambda: len(browser.items) == 3)
        assert len(stage.hub.watches) == 3
        stage.hub.forget(browser.seat, key_of(token("jug")))
        assert len(stage.hub.watches) == 2
        stage.entities.change("jug", {"price": 9})
        stage.entities.change("vase", {"price": 3})
        await until(lambda: len(browser.items) >= 5)
        assert {each["key"] for each in browser.items[3:]} == {
            key_of(token("vase")), key_of(token("vase", "bid_of", "ann")),
        }  # fmt: skip

    play(scene)


def test_a_slow_browser_gets_the_latest_and_disturbs_no_other() -> None:
    async def scene(stage: Stage) -> None:
        honest = await stage.browser(token("vase"))
        slow = Browser(stage.seat())
        await stage.hub.watch(slow.seat, [token("vase")])
        for price in range(500):
            stage.entities.change("vase", {"price": price})
            await honest.sees({"price": price})
        assert len(slow.seat._due) == 1
        slow.read()
        await slow.sees({"price": 499})
        assert len(slow.items) == 1

    play(scene)


def test_a_browser_that_does_not_answer_gets_no_more() -> None:
    async def scene(stage: Stage) -> None:
        honest = await stage.browser(token("vase"))
        deaf = Browser(stage.seat())
        await stage.hub.watch(deaf.seat, [token("vase")])
        deaf.read(answers=False)
        for price in range(200):
            stage.entities.change("vase", {"price": price})
            await honest.sees({"price": price})
        assert len(deaf.items) == hubs.UNANSWERED * hubs.ASK_MESSAGES
        deaf.seat.got("a guess")
        asked = list(deaf.seat._asked)
        assert len(asked) == hubs.UNANSWERED
        deaf.seat.got(asked[-1])
        await deaf.sees({"price": 199})

    play(scene)


def test_a_browser_that_cannot_be_asked_has_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "MOST_BYTES", 500)

    async def scene(stage: Stage) -> None:
        browser = await stage.browser(token("vase"), answers=False)
        price = 0
        while not browser.ended:
            price += 1
            stage.entities.change("vase", {"price": price})
            await asyncio.sleep(0.001)
        assert 2 < len(browser.items) < 30

    play(scene)


def test_a_view_that_fails_is_said_to_be_lost_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "RETRY_SECONDS", 0.01)

    async def scene(stage: Stage) -> None:
        stage.entities.values["vase"] = {"price": 1}
        browser = await stage.browser(token("vase"))
        await browser.sees({"price": 1})
        stage.entities.errors = [EntityFailed("broken"), ZeroDivisionError("more"), Unavailable("passes")]
        stage.entities.change("vase", {"price": 2})
        await browser.sees({"price": 2})
        assert {"key": key_of(token("vase")), "lost": True} in browser.items
        late = await stage.browser(token("vase"))
        await late.sees({"price": 2})

    play(scene)


def test_what_comes_while_a_view_is_lost_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "RETRY_SECONDS", 100.0)

    async def scene(stage: Stage) -> None:
        stage.entities.errors = [EntityFailed("broken")]
        lost = {"key": key_of(token("vase")), "lost": True}
        await (await stage.browser(token("vase"))).sees(lost)
        await (await stage.browser(token("vase"))).sees(lost)

    play(scene)


def test_a_value_that_was_painted_while_its_view_was_lost_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A template is rendered in a thread, which takes its time."""
    monkeypatch.setattr(hubs, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(hubs, "RETRY_MAX_SECONDS", 0.01)
    rendering, goes_on = threading.Event(), threading.Event()

    def html_of(topic: object, value: object) -> str:
        if value == {"price": 1}:
            rendering.set()
            goes_on.wait(20)
        return str(value)

    monkeypatch.setattr(values, "html_of", html_of)

    async def scene(stage: Stage) -> None:
        stage.entities.values["vase"] = {"price": 1}
        browser = await stage.browser(token("vase", template="vase.html"))
        key = key_of(token("vase", template="vase.html"))
        await until(rendering.is_set)
        stage.entities.errors = [EntityFailed("broken") for _ in range(10_000)]
        stage.entities.change("vase", {"price": 2})
        await browser.sees({"key": key, "lost": True})
        goes_on.set()
        (watch,) = stage.hub.watches.values()
        await until(lambda: watch.painter is None)
        late = await stage.browser(token("vase", template="vase.html"))
        await late.sees({"key": key, "lost": True})
        assert {"key": key, "html": str({"price": 1})} not in browser.items
        stage.entities.errors = []
        await browser.sees({"key": key, "html": str({"price": 2})})
        await late.sees({"key": key, "html": str({"price": 2})})

    play(scene)


def test_a_process_that_may_follow_no_more_refuses() -> None:
    async def scene(stage: Stage) -> None:
        stage.entities.follow_error = BufferFull("this process follows 1 entity")
        browser = await stage.browser(token("vase"))
        await browser.sees({"key": key_of(token("vase")), "refused": "full"})
        assert not stage.hub.watches
        assert stage.hub.counters["refused_full"] == 1

    play(scene)


@pytest.mark.parametrize(
    "limits", [Limits(views=1), Limits(watches=1)], ids=["of a browser", "of the process"]
)
def test_views_beyond_a_limit_are_refused(limits: Limits) -> None:
    async def scene(stage: Stage) -> None:
        browser = await stage.browser(token("vase"), token("jug"))
        await until(lambda: len(browser.items) == 2)
        assert {"key": key_of(token("jug")), "refused": "full"} in browser.items
        stage.hub.forget(browser.seat, key_of(token("vase")))
        await stage.hub.watch(browser.seat, [token("jug")])
        await browser.sees({})

    play(scene, limits)


def test_browsers_beyond_the_limit_get_no_seat() -> None:
    async def scene(stage: Stage) -> None:
        first = stage.seat()
        assert stage.hub.admit({"headers": []}, frames=True, answers=True) is None
        stage.hub.leave(first)
        stage.hub.leave(stage.seat())

    play(scene, Limits(browsers=1))


def test_a_browser_that_asks_for_nonsense_for_ever_has_to_go() -> None:
    async def scene(stage: Stage) -> None:
        seat = stage.seat()
        for number in range(50):
            await stage.hub.watch(seat, [f"nonsense:{number}"])
        assert seat.ended
        assert len(seat._due) <= 11

    play(scene, Limits(views=5))


def test_sockets_that_come_and_go_leave_nothing() -> None:
    async def scene(stage: Stage) -> None:
        for number in range(500):
            seat = stage.seat()
            watching = asyncio.ensure_future(
                stage.hub.watch(seat, [token(f"e{number % 7}"), token("x", "secret")])
            )
            if number % 3:
                await watching
            stage.hub.leave(seat)
            await watching
        assert not stage.hub.watches
        assert not stage.hub._ready
        assert stage.hub._tending is None

    play(scene)


# -- Rights ----------------------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Limits:
    """Rights are checked again at once."""
    monkeypatch.setattr(hubs, "TEND_SECONDS", 0.01)
    return Limits(check_seconds=0.01)


def test_a_view_that_is_not_public_is_shown_to_those_who_may() -> None:
    async def scene(stage: Stage) -> None:
        stage.entities.values["vase"] = 7
        await (await stage.browser(token("vase", "secret"))).sees(7)
        stage.user = "bob"
        refused = {"key": key_of(token("vase", "secret")), "refused": "denied"}
        await (await stage.browser(token("vase", "secret"), cookie="bob")).sees(refused)

    play(scene)


def test_a_right_that_is_withdrawn_ends_what_needs_it_and_nothing_else(soon: Limits) -> None:
    async def scene(stage: Stage) -> None:
        stage.entities.values["vase"] = 7
        browser = await stage.browser(token("vase", "secret"), token("vase"))
        await until(lambda: len(browser.items) == 2)
        stage.user = None
        await browser.sees({"key": key_of(token("vase", "secret")), "refused": "denied"})
        stage.entities.change("vase", 8)
        await browser.sees(8)
        assert browser.items[-1]["key"] == key_of(token("vase"))

    play(scene, soon)


def test_tabs_of_one_login_are_checked_together() -> None:
    async def scene(stage: Stage) -> None:
        for _ in range(20):
            await stage.browser(token("vase", "secret"), token("jug", "secret"))
        before = stage.looked
        await stage.hub._check_due(stage.hub.loop.time() + 2000)
        assert stage.looked == before + 1

    play(scene, Limits(check_seconds=1000.0))


def test_while_rights_cannot_be_checked_nothing_new_is_shown_that_needs_them(soon: Limits) -> None:
    async def scene(stage: Stage) -> None:
        stage.entities.values["vase"] = 7
        browser = await stage.browser(token("vase", "secret"), token("vase"))
        await until(lambda: len(browser.items) == 2)
        stage.user = ConnectionError("the sessions' server is away")
        await until(lambda: browser.seat.unsure)
        stage.entities.change("vase", 8)
        await browser.sees(8)
        assert browser.items[-1]["key"] == key_of(token("vase"))
        count = len(browser.items)
        stage.user = "ann"
        await until(lambda: len(browser.items) > count)
        assert browser.items[-1] == {"key": key_of(token("vase", "secret")), "value": 8}

    play(scene, soon)


def test_a_hook_that_hangs_holds_up_no_other_check(soon: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "RIGHTS_SECONDS", 0.05)
    goes_on = threading.Event()

    async def scene(stage: Stage) -> None:
        stage.entities.values |= {"vase": 1, "jug": 1}
        stuck = await stage.browser(token("vase", "secret"), cookie="stuck")
        other = await stage.browser(token("jug", "secret"), cookie="other")
        await stuck.sees(1)
        await other.sees(1)
        stage.may = lambda topic, user: topic.source.entity == "jug" or goes_on.wait(60)
        try:
            await until(lambda: stuck.seat.unsure)
            stage.may = lambda topic, user: topic.source.entity == "vase"
            await other.sees({"key": key_of(token("jug", "secret")), "refused": "denied"})
        finally:
            goes_on.set()

    play(scene, soon)


def test_hooks_that_hang_hold_up_no_template_of_a_public_view(
    soon: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "RIGHTS_SECONDS", 0.05)
    monkeypatch.setattr(values, "html_of", lambda topic, value: str(value))
    goes_on = threading.Event()

    async def scene(stage: Stage) -> None:
        stage.entities.values |= {"vase": 1, "jug": 1}
        open_to_all = await stage.browser(token("jug", template="jug.html"))
        guarded = [await stage.browser(token("vase", "secret"), cookie=str(n)) for n in range(hubs.THREADS)]
        for each in guarded:
            await each.sees(1)
        stage.may = lambda topic, user: goes_on.wait(20)
        await until(lambda: all(each.seat.unsure for each in guarded))
        stage.entities.change("jug", 2)
        try:
            await open_to_all.sees({"key": key_of(token("jug", template="jug.html")), "html": "2"})
        finally:
            goes_on.set()

    play(scene, soon)


def test_rights_that_were_not_checked_for_long_count_no_more() -> None:
    async def scene(stage: Stage) -> None:
        stage.entities.values["vase"] = 1
        browser = await stage.browser(token("vase", "secret"), token("vase"))
        await until(lambda: len(browser.items) == 2)
        browser.seat.checked_at -= hubs.STALE * stage.hub.limits.check_seconds + 1
        stage.entities.change("vase", 2)
        await browser.sees(2)
        assert browser.items[-1]["key"] == key_of(token("vase"))
        assert len(browser.items) == 3

    play(scene)


def test_a_silent_site_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "TEND_SECONDS", 0.005)
    monkeypatch.setattr(hubs, "QUIET_SECONDS", 0.01)

    async def scene(stage: Stage) -> None:
        seat = stage.seat()
        assert await seat.next() == []
        assert await seat.next() == []

    play(scene)
