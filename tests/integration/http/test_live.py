"""News through the WebSocket: who is let in, what they get, and that nothing happens without
them.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.testing import WebsocketCommunicator
from django.conf.urls.i18n import i18n_patterns
from django.contrib.admin import AdminSite, site
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import DatabaseError, connection
from django.http import HttpRequest
from django.test import Client, override_settings
from django.urls import path
from django.utils.translation import get_language

from sharding_app.adapters.channels.live import MAX_WORDS, live_application
from sharding_app.admin import register
from sharding_app.dashboard import pages
from sharding_app.dashboard.live_route import find_live_path
from sharding_app.http import feed as feeds
from sharding_app.http import routing
from sharding_app.http.door import user_of
from sharding_app.http.feed import Feed, Seat
from sharding_app.http.handshake import from_own_page
from sharding_app.settings.live_updates import check_live_updates
from tests.support.answering_nodes import FakeNodes, HandClock, collector
from tests.support.slack import SLACK

SECONDS = 5.0 * SLACK
OVERVIEW = json.dumps({"page": "", "site": "admin", "language": "en"})


class Watcher:
    """A staff user who may see everything, as long as `may` says so."""

    def __init__(self) -> None:
        self.may = True
        self.asked = 0

    def __call__(self, scope: Mapping[str, Any]) -> Any:
        self.asked += 1
        cookies = [value for name, value in scope["headers"] if name == b"cookie"]
        if cookies != [b"other=1; sessionid=mine"] or not self.may:
            return None
        return self

    def has_perm(self, name: str) -> bool:
        return True

    is_active = True


class Stage:
    """A feed of a cluster without nodes, and browsers that open it."""

    def __init__(self, *, ask_again: float = 1e9) -> None:
        self.nodes = FakeNodes()
        self.clock = HandClock()
        self.watcher = Watcher()
        self.looks = collector(self.nodes, self.clock)
        self.feed = Feed(self.looks, self.watcher, every_seconds=0.02, ask_again_seconds=ask_again)
        self.application = live_application(self.feed)

    def browser(self, session: str = "mine", origin: str = "http://testserver") -> WebsocketCommunicator:
        headers = [(b"origin", origin.encode()), (b"host", b"testserver")]
        if session:
            headers.append((b"cookie", f"other=1; sessionid={session}".encode()))
        return WebsocketCommunicator(self.application, "/sharding/live/", headers)


async def news(browser: WebsocketCommunicator) -> Any:
    return json.loads(await browser.receive_from(SECONDS))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


def play(scene: Callable[[Stage], Coroutine[Any, Any, None]], **how: Any) -> Stage:
    """Act a scene on a loop of its own, and wait until the feed has let go of its connection."""
    stage = Stage(**how)

    async def whole() -> None:
        await scene(stage)
        await until(lambda: not stage.feed.seats and stage.feed._task is None)

    asyncio.run(whole())
    stage.feed._thread.shutdown(wait=True)
    return stage


@pytest.mark.parametrize(
    ("session", "origin"),
    [
        ("", "http://testserver"),
        ("stolen", "http://testserver"),
        ("mine", "http://evil.example"),
        ("mine", "http://testserver:9999"),
        ("mine", "null"),
        ("mine", ""),
    ],
)
def test_strangers_are_not_let_in(session: str, origin: str) -> None:
    async def scene(stage: Stage) -> None:
        browser = stage.browser(session, origin)
        connected, _ = await browser.connect(SECONDS)
        assert not connected
        await browser.disconnect()

    assert play(scene).nodes.asked == 0


@pytest.mark.django_db(transaction=True)
def test_a_browser_gets_what_its_page_shows_and_then_what_has_changed() -> None:
    async def scene(stage: Stage) -> None:
        browser = stage.browser()
        assert (await browser.connect(SECONDS))[0]
        await browser.send_to(OVERVIEW)
        first = await news(browser)
        assert {"banner", "tiles", "node_table", "type_table", "decisions"} <= first["parts"].keys()
        assert "No node is running" in first["parts"]["banner"]
        stage.looks._read = broken
        stage.clock.time += 1
        later = await news(browser)
        assert later["parts"] == {}
        assert "PostgreSQL" in later["trouble"]
        await browser.disconnect()

    def broken() -> Any:
        raise DatabaseError("connection refused")

    play(scene)


@pytest.mark.django_db(transaction=True)
def test_trouble_is_told_as_long_as_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that hears of none says "live" over rows that stand still."""
    monkeypatch.setattr(feeds, "QUIET_SECONDS", 0.05)

    async def scene(stage: Stage) -> None:
        stage.looks._read = broken
        browser = stage.browser()
        assert (await browser.connect(SECONDS))[0]
        await browser.send_to(OVERVIEW)
        told = [(await news(browser))["trouble"] for _ in range(3)]
        assert all("PostgreSQL" in each for each in told), told
        await browser.disconnect()

    def broken() -> Any:
        raise DatabaseError("connection refused")

    play(scene)


@pytest.mark.django_db(transaction=True)
def test_who_may_no_longer_watch_is_shown_out() -> None:
    async def scene(stage: Stage) -> None:
        browser = stage.browser()
        assert (await browser.connect(SECONDS))[0]
        await browser.send_to(OVERVIEW)
        await news(browser)
        stage.watcher.may = False
        stage.clock.time += 1
        while (message := await browser.receive_output(SECONDS))["type"] != "websocket.close":
            assert message["type"] == "websocket.send"
        await browser.disconnect()

    play(scene, ask_again=0.05)


@pytest.mark.django_db(transaction=True)
def test_nothing_is_looked_at_while_no_browser_watches() -> None:
    async def scene(stage: Stage) -> None:
        browser = stage.browser()
        assert (await browser.connect(SECONDS))[0]
        await browser.send_to(OVERVIEW)
        await news(browser)
        await browser.disconnect()
        await until(lambda: stage.feed._task is None)
        looked = stage.looks._looked_at
        stage.clock.time += 100
        await asyncio.sleep(0.2)
        assert stage.looks._looked_at == looked

    play(scene)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("words", ["x", "[]", "{}", "null", '{"site": "admin"}', "[" * 2000])
def test_words_that_make_no_sense_are_not_answered(words: str) -> None:
    async def scene(stage: Stage) -> None:
        browser = stage.browser()
        assert (await browser.connect(SECONDS))[0]
        await browser.send_to(words)
        assert await browser.receive_nothing(0.1)
        await browser.send_to(OVERVIEW)
        assert (await news(browser))["parts"]
        await browser.disconnect()

    play(scene)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "said",
    [
        {"page": "types/99/"},
        {"page": "nothing/"},
        {"page": "x" * 4000},
        {"page": "http://["},
        {"page": "types/1/entity/?id=\ud800"},
    ],
)
def test_a_page_that_does_not_exist_is_said_to_be_so(said: dict[str, str]) -> None:
    async def scene(stage: Stage) -> None:
        browser = stage.browser()
        assert (await browser.connect(SECONDS))[0]
        await browser.send_to(json.dumps(said))
        heard = await news(browser)
        assert heard["parts"] == {}
        assert heard["trouble"]
        await browser.disconnect()

    play(scene)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("fails", ["making", "saying", "saying for ever"])
def test_a_browser_whose_news_fail_is_shown_out_and_disturbs_no_other(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = pages.build

    def build(topic: str, *args: Any, **more: Any) -> Any:
        if topic == "nodes/" and fails == "making":
            raise RuntimeError("broken page")
        return built(topic, *args, **more)

    monkeypatch.setattr(pages, "build", build)
    monkeypatch.setattr(feeds, "SAY_SECONDS", 0.2)

    async def scene(stage: Stage) -> None:
        honest, other = stage.browser(), stage.browser()
        assert (await honest.connect(SECONDS))[0]
        await honest.send_to(OVERVIEW)
        await news(honest)
        assert (await other.connect(SECONDS))[0]
        seat = list(stage.feed.seats)[1]
        ended = asyncio.Event()

        async def end() -> None:
            ended.set()

        async def say(text: str) -> None:
            if fails == "saying":
                raise UnicodeEncodeError("utf-8", text, 0, 1, "surrogates not allowed")
            await asyncio.Event().wait()

        seat.end = end
        if fails != "making":
            seat.say = say
        await other.send_to(json.dumps({"page": "nodes/"}))
        async with asyncio.timeout(SECONDS):
            await ended.wait()
        assert seat not in stage.feed.seats
        stage.looks._read = broken
        stage.clock.time += 1
        assert "PostgreSQL" in (await news(honest))["trouble"], "the honest one goes on hearing"
        await honest.disconnect()
        await other.disconnect()

    def broken() -> Any:
        raise DatabaseError("connection refused")

    play(scene)


@pytest.mark.django_db(transaction=True)
def test_a_browser_that_takes_its_news_slowly_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "QUIET_SECONDS", 0.05)
    monkeypatch.setattr(feeds, "SAY_SECONDS", 60.0)

    async def scene(stage: Stage) -> None:
        honest, slow = stage.browser(), stage.browser()
        assert (await honest.connect(SECONDS))[0]
        assert (await slow.connect(SECONDS))[0]
        taken, said = asyncio.Event(), 0

        async def say(text: str) -> None:
            nonlocal said
            said += 1
            await taken.wait()

        list(stage.feed.seats)[1].say = say
        await slow.send_to(OVERVIEW)
        await until(lambda: said == 1)
        await honest.send_to(OVERVIEW)
        for _ in range(3):
            await news(honest)
        assert said == 1, "it gets nothing more before it has taken that"
        taken.set()
        await until(lambda: said > 1)
        await honest.disconnect()
        await slow.disconnect()

    play(scene)


urlpatterns = i18n_patterns(path("admin/", site.urls))


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("rows")
@override_settings(ROOT_URLCONF=__name__)
def test_links_stay_below_the_path_of_the_site_and_in_the_language_of_the_page() -> None:
    async def scene(stage: Stage) -> None:
        browser = stage.browser()
        browser.scope["root_path"] = "/shop"
        assert (await browser.connect(SECONDS))[0]
        await browser.send_to(json.dumps({"page": "nodes/", "language": "de"}))
        table = (await news(browser))["parts"]["node_table"]
        assert set(re.findall('href="([^"]*)/n-.*?"', table)) == {"/shop/de/admin/sharding/cluster/nodes"}
        await browser.disconnect()

    play(scene)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("Asia/Tokyo", "05:15:30"),
        ("UTC", "20:15:30"),
        ("../etc", "20:15:30"),
        ("Asia", "20:15:30"),
        ("", "20:15:30"),
    ],
)
def test_times_are_by_the_clock_of_the_page(zone: str, shown: str) -> None:
    """A middleware may have activated the user's time zone for the page."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_decision SET at = '2026-03-01 20:15:30Z'")

    async def scene(stage: Stage) -> None:
        browser = stage.browser()
        assert (await browser.connect(SECONDS))[0]
        await browser.send_to(json.dumps({"page": "timeline/", "language": "en", "zone": zone}))
        assert f">{shown}</time>" in (await news(browser))["parts"]["decisions"]
        await browser.disconnect()

    play(scene)


@pytest.mark.usefixtures("rows")
def test_a_page_is_rendered_once_for_all_who_may_see_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    built = pages.build
    made: list[tuple[str, bool, str]] = []

    def build(topic: str, look: Any, rights: Any, *args: Any, **more: Any) -> Any:
        made.append((topic, rights.payloads, get_language()))
        return built(topic, look, rights, *args, **more)

    async def nothing(*_: str) -> None:
        raise AssertionError("nothing is sent here")

    monkeypatch.setattr(pages, "build", build)
    stage = Stage()

    def seat(page: str, language: str, user: Watcher) -> Seat:
        return Seat(handshake(), nothing, nothing, page=page, language=language, user=user)

    all_rights = [seat("", "en", Watcher()) for _ in range(20)]
    others = [seat("", "en", Lesser()), seat("", "de", Watcher()), seat("nodes/", "en", Watcher())]
    found = stage.feed._look([*all_rights, *others, *all_rights], 0.0)
    assert sorted(made) == [("", False, "en"), ("", True, "de"), ("", True, "en"), ("nodes/", True, "en")]
    assert len({id(found[each]) for each in all_rights}) == 1
    assert len({id(news) for news in found.values()}) == 4
    stage.feed._thread.shutdown()


class Lesser(Watcher):
    """A user who may see the dashboard, and nothing else."""

    def has_perm(self, name: str) -> bool:
        return name == "sharding.view_cluster"


@pytest.mark.django_db(transaction=True)
def test_a_browser_that_goes_while_it_is_let_in_leaves_no_seat() -> None:
    async def scene(stage: Stage) -> None:
        async def receive() -> dict[str, str]:
            return {"type": "websocket.connect"}

        async def send(message: dict[str, Any]) -> None:
            assert list(stage.feed.seats)
            raise ConnectionResetError("the browser is gone")

        with pytest.raises(ConnectionResetError):
            await stage.application(stage.browser().scope, receive, send)
        assert not stage.feed.seats

    play(scene)


def test_who_says_too_much_is_shown_out() -> None:
    async def scene(stage: Stage) -> None:
        browser = stage.browser()
        assert (await browser.connect(SECONDS))[0]
        await browser.send_to("x" * (MAX_WORDS + 1))
        assert (await browser.receive_output(SECONDS))["type"] == "websocket.close"
        await browser.disconnect()

    play(scene)


def test_the_number_of_watchers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MAX_WATCHERS", 1)

    async def scene(stage: Stage) -> None:
        first, second = stage.browser(), stage.browser()
        assert (await first.connect(SECONDS))[0]
        assert not (await second.connect(SECONDS))[0]
        await first.disconnect()
        await second.disconnect()

    play(scene)


def test_watchers_that_come_at_once_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MAX_WATCHERS", 1)
    all_have_come = threading.Event()

    def find_user(_: Mapping[str, Any]) -> Any:
        assert all_have_come.wait(SECONDS)
        return Watcher()

    async def scene(stage: Stage) -> None:
        stage.feed._find_user = find_user
        browsers = [stage.browser() for _ in range(4)]
        connecting = [asyncio.create_task(each.connect(SECONDS)) for each in browsers]
        while stage.feed._thread._work_queue.qsize() < 3:  # noqa: ASYNC110 - a thread fills it
            await asyncio.sleep(0.01)
        all_have_come.set()
        assert sorted([(await each)[0] for each in connecting]) == [False, False, False, True]
        for each in browsers:
            await each.disconnect()

    play(scene)


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_was_ended_refuses_one_browser_and_no_later_one() -> None:
    asked: list[int] = []

    def find_user(scope: Mapping[str, Any]) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            asked.append(cursor.fetchone()[0])
            if len(asked) == 1:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return Watcher()

    async def scene(stage: Stage) -> None:
        stage.feed._find_user = find_user
        for admitted in (False, True):
            browser = stage.browser()
            assert (await browser.connect(SECONDS))[0] is admitted
            await browser.disconnect()

    play(scene)


@pytest.mark.django_db(transaction=True)
def test_a_stranger_leaves_no_connection_open() -> None:
    stage = Stage()
    opened: list[bool] = []

    def refuse(scope: Mapping[str, Any]) -> None:
        connection.ensure_connection()
        opened.append(connection.connection is not None)

    async def scene() -> None:
        stage.feed._find_user = refuse
        browser = stage.browser()
        assert not (await browser.connect(SECONDS))[0]
        await browser.disconnect()

    asyncio.run(scene())
    assert opened == [True]
    assert stage.feed._thread.submit(lambda: connection.connection).result(SECONDS) is None
    stage.feed._thread.shutdown(wait=True)


@pytest.mark.django_db
def test_a_session_stands_for_its_user_only_while_it_counts() -> None:
    user = get_user_model().objects.create_user("eve", password="x", is_staff=True)
    client = Client()
    client.force_login(user)
    hers = handshake(client.cookies["sessionid"].value)
    assert user_of(hers) is None, "she may not see the dashboard"
    user.user_permissions.add(Permission.objects.get(codename="view_cluster"))
    assert user_of(hers) == user
    user.is_staff = False
    user.save()
    assert user_of(hers) is None
    user.is_staff = True
    user.set_password("y")
    user.save()
    assert user_of(hers) is None, "another password ends all sessions"
    assert user_of(handshake("no-such-session")) is None


def handshake(
    session: str = "", origin: str = "http://testserver", host: str = "testserver", query: bytes = b""
) -> dict[str, Any]:
    """Return the scope of a WebSocket that a browser opens."""
    headers = [(b"host", host.encode()), (b"cookie", f"sessionid={session}".encode())]
    return {
        "type": "websocket",
        "path": "/sharding/live/",
        "scheme": "ws",
        "client": ("192.0.2.7", 4711),
        "query_string": query,
        "headers": [*headers, (b"origin", origin.encode())] if origin else headers,
    }


class Strict(AdminSite):
    """A site that lets in from one address alone, and with a second factor."""

    asked: ClassVar[list[HttpRequest]] = []

    def has_permission(self, request: HttpRequest) -> bool:
        self.asked.append(request)
        return (
            super().has_permission(request)
            and request.META["REMOTE_ADDR"] == "192.0.2.7"
            and request.session.get("second factor") == "given"
            and "HTTP_HOST" in request.META
        )


class Middle(AdminSite):
    """A site that asks for what only a middleware adds to the user."""

    def has_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_verified())  # type: ignore[union-attr] # a middleware's


@pytest.mark.django_db
def test_the_admin_site_itself_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    strict, middle = Strict("strict"), Middle("middle")
    register(strict)
    register(middle)
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root", password="x"))
    session = client.cookies["sessionid"].value
    assert user_of(handshake(session)) is not None, "the default site wants a member of staff"
    assert user_of(handshake(session, query=b"site=no-such-site")) is None
    assert user_of(handshake(session, query=b"site=strict")) is None
    stored = client.session
    stored["second factor"] = "given"
    stored.save()
    assert user_of(handshake(session, query=b"site=strict")) is not None
    assert user_of({**handshake(session, query=b"site=strict"), "client": ("192.0.2.8", 1)}) is None
    assert user_of(handshake(session, query=b"site=middle")) is None, "what cannot be asked is refused"
    assert "has_permission of the admin site 'middle' fails" in caplog.text


@pytest.mark.parametrize(
    ("origin", "host", "own"),
    [
        ("http://testserver", "testserver", True),
        ("https://testserver", "testserver", False),
        ("http://testserver:80", "testserver", True),
        ("http://testserver:8000", "testserver:8000", True),
        ("http://testserver:9999", "testserver:8000", False),
        ("http://testserver", "testserver:8000", False),
        ("https://trusted.example", "testserver", True),
        ("http://trusted.example", "testserver", False),
        ("https://a.below.example", "testserver", True),
        ("https://below.example.evil", "testserver", False),
        ("http://evil.example", "evil.example", False),
        ("null", "testserver", False),
        ("", "testserver", False),
        ("http://[", "testserver", False),
        ("file://testserver", "testserver", False),
    ],
)
def test_only_pages_of_this_very_site_open_the_socket(origin: str, host: str, own: bool) -> None:
    trusted = ["https://trusted.example", "https://*.below.example"]
    with override_settings(CSRF_TRUSTED_ORIGINS=trusted, ALLOWED_HOSTS=["testserver"]):
        assert from_own_page(handshake(origin=origin, host=host)) is own


@pytest.mark.parametrize(
    ("origin", "scheme", "forwarded", "own"),
    [
        ("https://testserver", "wss", "", True),
        ("https://testserver:443", "wss", "", True),
        ("http://testserver", "wss", "", False),
        ("http://testserver", "https", "", False),
        ("https://testserver", "ws", "https", True),
        ("http://testserver", "ws", "https", False),
        ("http://testserver", "ws", "http", True),
        ("https://testserver", "ws", "http", False),
        ("https://testserver", "ws", "", False),
        ("https://testserver", None, "https", True),
        ("http://testserver", None, "https", False),
        ("https://testserver", None, "", True),
        ("http://testserver", None, "", True),
    ],
)
def test_a_page_over_http_opens_no_socket_of_a_site_with_https(
    origin: str, scheme: str | None, forwarded: str, own: bool
) -> None:
    scope = handshake(origin=origin) | {"scheme": scheme}
    if scheme is None:  # as Daphne
        del scope["scheme"]
    if forwarded:
        scope["headers"].append((b"x-forwarded-proto", forwarded.encode()))
    with override_settings(
        SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"), ALLOWED_HOSTS=["testserver"]
    ):
        assert from_own_page(scope) is own


# -- Where it is -----------------------------------------------------------------------------------


class Around:
    """What a project may put around its routes."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner


@pytest.mark.parametrize(
    ("application", "found"),
    [
        (None, None),
        (object(), None),
        (ProtocolTypeRouter({}), None),
        (ProtocolTypeRouter({"websocket": URLRouter([])}), None),
        (ProtocolTypeRouter({"websocket": URLRouter(routing.websocket_urlpatterns)}), "sharding/live/"),
        (Around(ProtocolTypeRouter({"websocket": Around(URLRouter(routing.websocket_urlpatterns))})), "sharding/live/"),
        (
            ProtocolTypeRouter(
                {"websocket": URLRouter([path("ws/", URLRouter(routing.websocket_urlpatterns))])}  # type: ignore[arg-type,list-item] # as Channels' docs say
            ),
            "ws/sharding/live/",
        ),
    ],
)  # fmt: skip
def test_the_route_is_found_wherever_it_stands(application: Any, found: str | None) -> None:
    assert find_live_path(application) == found


def test_the_demo_site_takes_websockets() -> None:
    from project import asgi

    assert find_live_path(asgi.application) == "sharding/live/"


# -- The check -------------------------------------------------------------------------------------


def project(folder: Path, files: dict[str, str]) -> None:
    """A project's modules, not loaded."""
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


LINE = "from sharding_app.http.routing import websocket_urlpatterns\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"liveless/asgi": "import os\nimport liveless.gone\n"}, False),
        ({"liveless/asgi": LINE}, True),
        ({"liveless/asgi": "import sharding_app.http.routing as r\n"}, True),
        ({"liveless/asgi": "from .routes import x\n", "liveless/routes": LINE}, True),
        ({"liveless/asgi": "from . import routes\n", "liveless/routes": LINE}, True),
        ({"liveless/asgi": "from . import routes\n", "liveless/routes": "from .asgi import *\n"}, False),
        ({"liveless/asgi": "this is no Python"}, False),
        ({}, False),
    ],
)
def test_a_check_says_when_the_line_in_asgi_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], found: bool
) -> None:
    project(tmp_path, {"liveless/__init__": "", **files})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "liveless", raising=False)
    with override_settings(ASGI_APPLICATION="liveless.asgi.application"):
        said = check_live_updates()
    assert [each.id for each in said] == ([] if found else ["sharding.I001"])
    assert "liveless.asgi" not in sys.modules
    monkeypatch.delitem(sys.modules, "liveless", raising=False)


def test_the_demo_has_the_line_and_a_project_without_asgi_has_not() -> None:
    assert check_live_updates() == []
    with override_settings(ASGI_APPLICATION=None):
        assert [each.id for each in check_live_updates()] == ["sharding.I001"]
