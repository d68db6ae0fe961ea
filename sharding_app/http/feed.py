"""News for those who watch the dashboard through a WebSocket: one look a second for all of them, and none without them.

Contract: looking and rendering happen on one thread beside the loop, with a database connection of its own that is closed
when the last one has left. Each browser gets only the parts that have changed since it got them last. Whether somebody may
still watch is asked anew every few seconds: who has logged out, or lost the permission, is shown out.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from django.conf import settings
from django.contrib.auth import get_user
from django.db import Error, connections
from django.http import Http404, HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import translation

from sharding_app.adapters.channels.live import End, Say
from sharding_app.http.collector import Collector, Unreachable, collector

logger = logging.getLogger("sharding.client")

EVERY_SECONDS = 1.0
ASK_AGAIN_SECONDS = 10.0
QUIET_SECONDS = 20.0
"""Something is said at least so often, so that nobody on the way takes the connection for dead."""
MAX_WATCHERS = 200


@dataclass(eq=False, slots=True)
class Seat:
    """One browser, and what it knows already."""

    session: str
    say: Say
    end: End
    page: str | None = None
    site: str = "admin"
    language: str = ""
    user: Any = None
    asked_at: float = 0.0
    "When the database was asked last who that is."
    said_at: float = 0.0
    knows: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class News:
    """What came of a look for one seat: parts by name; None: it may not watch any more."""

    parts: dict[str, Any] | None


def user_of(session: str) -> Any:
    """Who that session belongs to, as the database says now; None: nobody who may watch."""
    from sharding_app.admin.permissions import may_view

    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session)
    user = get_user(request)
    return user if user.is_active and getattr(user, "is_staff", False) and may_view(user) else None


class Feed:
    """The hub of one event loop."""

    def __init__(
        self,
        looks: Collector = collector,
        find_user: Callable[[str], Any] = user_of,
        every_seconds: float = EVERY_SECONDS,
        ask_again_seconds: float = ASK_AGAIN_SECONDS,
    ) -> None:
        self.seats: dict[Seat, None] = {}
        self._looks = looks
        self._find_user = find_user
        self._every = every_seconds
        self._ask_again = ask_again_seconds
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sharding-feed")

    async def admit(self, cookies: dict[str, str], say: Say, end: End) -> Seat | None:
        session = cookies.get(settings.SESSION_COOKIE_NAME, "")
        if not session or len(self.seats) >= MAX_WATCHERS:
            return None
        loop = asyncio.get_running_loop()
        try:
            user = await loop.run_in_executor(self._thread, self._find_user, session)
        except Error:
            logger.info("nobody is let in: the database does not answer", extra={"action": "live_refused"})
            return None
        if user is None:
            return None
        seat = Seat(session, say, end, user=user, asked_at=loop.time())
        self.seats[seat] = None
        if self._task is None:
            self._task = loop.create_task(self._run(), name="sharding feed")
        return seat

    def hear(self, seat: Seat, words: str) -> None:
        try:
            said = json.loads(words)
            seat.page, seat.site = str(said["page"]), str(said.get("site", "admin"))
            language = str(said.get("language", ""))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            seat.page = None
            return
        seat.language = language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE
        seat.knows.clear()
        self._wake.set()

    def leave(self, seat: Seat) -> None:
        self.seats.pop(seat, None)
        self._wake.set()

    # -- Inside ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self.seats:
                began = loop.time()
                self._wake.clear()
                await self._turn(began)
                pause = max(self._every / 20, self._every - (loop.time() - began))
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        finally:
            self._task = None
            self._thread.submit(connections.close_all)

    async def _turn(self, now: float) -> None:
        waiting = [seat for seat in self.seats if seat.page is not None]
        if not waiting:
            return
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._look, waiting, now)
        except Exception:
            logger.exception("the dashboard's news could not be made", extra={"action": "live_failed"})
            return
        for seat, news in found.items():
            if news.parts is None:
                self.leave(seat)
                await seat.end()
            else:
                await self._tell(seat, news.parts, now)

    async def _tell(self, seat: Seat, parts: dict[str, Any], now: float) -> None:
        fresh = {}
        for name, value in parts.items():
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            if seat.knows.get(name) != text:
                seat.knows[name] = text
                fresh[name] = value
        if not fresh and now - seat.said_at < QUIET_SECONDS:
            return
        seat.said_at = now
        message = {name: value for name, value in fresh.items() if not name.startswith("part:")}
        message["parts"] = {name[5:]: value for name, value in fresh.items() if name.startswith("part:")}
        await seat.say(json.dumps(message, ensure_ascii=False, separators=(",", ":")))

    # -- On the thread ---------------------------------------------------------------------------------------------

    def _look(self, seats: list[Seat], now: float) -> dict[Seat, News]:
        try:
            look = self._looks.look()
        except Unreachable as error:
            connections.close_all()
            return {seat: News({"trouble": str(error)}) for seat in seats}
        return {seat: self._news(seat, look, now) for seat in seats}

    def _news(self, seat: Seat, look: Any, now: float) -> News:
        from sharding_app.admin.pages import build
        from sharding_app.admin.permissions import Rights

        try:
            if now - seat.asked_at >= self._ask_again:
                seat.user, seat.asked_at = self._find_user(seat.session), now
            if seat.user is None:
                return News(None)
            base = reverse("admin:sharding_cluster_changelist", current_app=seat.site)
            with translation.override(seat.language):
                live = build(seat.page or "", look, Rights.of(seat.user), base, live=True).live()
        except (Http404, NoReverseMatch) as error:
            return News({"trouble": str(error)})
        except Error as error:
            connections.close_all()
            return News({"trouble": str(error)})
        parts = {f"part:{name}": html for name, html in live.pop("parts").items()}
        return News({**parts, **live, "trouble": ""})


class Feeds:
    """One feed for each event loop: what `sharding_app.http.routing` gives to the consumer."""

    def __init__(self) -> None:
        self._feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, Feed] = WeakKeyDictionary()

    @property
    def here(self) -> Feed:
        loop = asyncio.get_running_loop()
        feed = self._feeds.get(loop)
        if feed is None:
            feed = self._feeds[loop] = Feed()
        return feed

    async def admit(self, cookies: dict[str, str], say: Say, end: End) -> Seat | None:
        return await self.here.admit(cookies, say, end)

    def hear(self, seat: Seat, words: str) -> None:
        self.here.hear(seat, words)

    def leave(self, seat: Seat) -> None:
        self.here.leave(seat)
