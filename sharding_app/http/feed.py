"""News for browsers that watch the dashboard through a WebSocket: one look a second for all of
them, none without them.

Contract: looking and rendering happen on one thread beside the loop, with a database connection of
its own, which is closed when the last browser has left. A page is rendered once for all browsers
that show it with the same rights and language. Each browser gets only the parts that have changed
since it last got them. Every few seconds its right to watch is checked again: a user who
has logged out, or lost the permission, is disconnected (`http.door`). So is a browser whose news
cannot be made or sent: it disturbs no other one.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.handlers.asgi import get_script_prefix as path_of_site
from django.db import Error, connections
from django.http import Http404
from django.urls import NoReverseMatch, get_script_prefix, reverse, set_script_prefix
from django.utils import timezone, translation

from sharding_app.adapters.channels.live import End, Say
from sharding_app.dashboard.permissions import Rights
from sharding_app.operations.cache import Collector, Look, Unreachable, collector

logger = logging.getLogger("sharding.client")

EVERY_SECONDS = 1.0
ASK_AGAIN_SECONDS = 10.0
QUIET_SECONDS = 20.0
"""The longest silence, so that no proxy on the way takes the connection for dead."""
SAY_SECONDS = 5.0
"""A browser that does not take a message within this time is disconnected; the others still get
theirs."""
MAX_WATCHERS = 200
TROUBLE = "trouble"
"""Why what a page shows may be old; empty: it is not."""


@dataclass(eq=False, slots=True)
class Seat:
    """One browser, and the parts that it has."""

    scope: Mapping[str, Any]
    "Its handshake."
    say: Say
    end: End
    page: str | None = None
    site: str = "admin"
    language: str = ""
    zone: ZoneInfo | None = None
    "The page's time zone; None: that of the site."
    user: Any = None
    asked_at: float = 0.0
    "When the user was last read from the database."
    said_at: float = 0.0
    is_taking: bool = False
    "A message to it is under way: it gets no other one before that has arrived."
    knows: dict[str, str] = field(default_factory=dict)


class News:
    """What a look has brought for one page: the JSON of each part by its name.

    Parts of the page begin with "part:"; the others stand beside them in a message.
    """

    __slots__ = ("texts",)

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.texts = {
            name: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            for name, value in parts.items()
        }


Shown = tuple[str, Rights, str, str, ZoneInfo | None]
"""Page, rights, the dashboard's address, language, time zone: all that a rendering depends on."""


def find_user(scope: Mapping[str, Any]) -> Any:
    """Return the admin site's user for a handshake.

    Imported late: the site's module needs Django's apps, which may not be ready when routes are
    read.
    """
    from sharding_app.http.door import user_of

    return user_of(scope)


class Feed:
    """The hub of one event loop."""

    def __init__(
        self,
        looks: Collector = collector,
        find_user: Callable[[Mapping[str, Any]], Any] = find_user,
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
        self._under_way: set[asyncio.Task[None]] = set()
        "Messages to browsers. None waits for another one: a slow browser holds up itself."
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sharding-feed")

    async def admit(self, scope: Mapping[str, Any], say: Say, end: End) -> Seat | None:
        from sharding_app.http.door import site_name
        from sharding_app.http.handshake import from_own_page

        if len(self.seats) >= MAX_WATCHERS or not from_own_page(scope):
            return None
        loop = asyncio.get_running_loop()
        try:
            user = await loop.run_in_executor(self._thread, self._let_in, scope)
        except Error:
            logger.info("no user is let in: the database does not answer", extra={"action": "live_refused"})
            return None
        if user is None or len(self.seats) >= MAX_WATCHERS:  # others came meanwhile
            return None
        seat = Seat(scope, say, end, site=site_name(scope), user=user, asked_at=loop.time())
        self.seats[seat] = None
        if self._task is None:
            self._task = loop.create_task(self._run(), name="sharding feed")
        return seat

    def hear(self, seat: Seat, words: str) -> None:
        try:
            said = json.loads(words)
            seat.page = str(said["page"])
            language = str(said.get("language", ""))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            seat.page = None
            return
        seat.language = language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE
        seat.zone = _zone(said.get("zone"))
        seat.knows.clear()
        self._wake.set()

    def leave(self, seat: Seat) -> None:
        self.seats.pop(seat, None)
        self._wake.set()

    def end_thread(self) -> None:
        """End the thread once it has nothing to do."""
        self._thread.shutdown(wait=False)

    # -- Inside ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self.seats or self._under_way:
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
        waiting = [seat for seat in self.seats if seat.page is not None and not seat.is_taking]
        if not waiting:
            return
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._thread, self._look, waiting, now)
        except Exception:
            logger.exception("the dashboard's news could not be made", extra={"action": "live_failed"})
            return
        for seat, news in found.items():
            seat.is_taking = True
            task = loop.create_task(self._pass_on(seat, news, now), name="sharding feed: news")
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _pass_on(self, seat: Seat, news: News | None, now: float) -> None:
        """Give a browser its news; None: it may not watch any more."""
        try:
            async with asyncio.timeout(SAY_SECONDS):
                if news is not None:
                    await self._tell(seat, news, now)
                    seat.is_taking = False
                    return
        except Exception:
            logger.exception("a browser did not take its news", extra={"action": "live_failed"})
        self.leave(seat)
        with suppress(Exception):
            async with asyncio.timeout(SAY_SECONDS):
                await seat.end()

    async def _tell(self, seat: Seat, news: News, now: float) -> None:
        fresh = {name: text for name, text in news.texts.items() if seat.knows.get(name) != text}
        if not fresh and now - seat.said_at < QUIET_SECONDS:
            return
        seat.knows |= fresh
        seat.said_at = now
        # Told each time: a browser takes a message without trouble for its end.
        fresh[TROUBLE] = news.texts[TROUBLE]
        beside = {name: text for name, text in fresh.items() if not name.startswith("part:")}
        parts = {name[5:]: text for name, text in fresh.items() if name.startswith("part:")}
        await seat.say(_object({**beside, "parts": _object(parts)}))

    # -- On the thread -----------------------------------------------------------------------------

    def _let_in(self, scope: Mapping[str, Any]) -> Any:
        """Find the user of a handshake. The connection stays open for a browser alone: without one,
        no turn would ever close it, and a broken one would refuse every browser from then on.
        """
        user = None
        try:
            user = self._find_user(scope)
            return user
        finally:
            if user is None:
                connections.close_all()

    def _look(self, seats: list[Seat], now: float) -> dict[Seat, News | None]:
        try:
            look = self._looks.look()
        except Unreachable as error:
            connections.close_all()
            return dict.fromkeys(seats, News({TROUBLE: str(error)}))
        made: dict[Shown, News] = {}
        return {seat: self._news_or_end(seat, look, now, made) for seat in seats}

    def _news_or_end(self, seat: Seat, look: Look, now: float, made: dict[Shown, News]) -> News | None:
        """Find or make one browser's news; an error disconnects this browser and no other."""
        try:
            shown = self._shown(seat, now)
            if shown is None:
                return None
            if shown not in made:
                made[shown] = _news(shown, look)
            return made[shown]
        except (Http404, NoReverseMatch) as error:
            return News({TROUBLE: str(error)})
        except Error as error:
            connections.close_all()
            return News({TROUBLE: str(error)})
        except Exception:
            logger.exception("a page's news could not be made", extra={"action": "live_failed"})
            return None

    def _shown(self, seat: Seat, now: float) -> Shown | None:
        """Return what a browser shows; None: its user may not watch any more."""
        if now - seat.asked_at >= self._ask_again:
            seat.user, seat.asked_at = self._find_user(seat.scope), now
        if seat.user is None:
            return None
        return seat.page or "", Rights.of(seat.user), _base(seat), seat.language, seat.zone


def _zone(name: object) -> ZoneInfo | None:
    try:
        return ZoneInfo(str(name))
    except (ValueError, KeyError, OSError):
        return None


def _base(seat: Seat) -> str:
    """Return the dashboard's address as the page of a browser has it. It may begin with the site's
    own path, which a server knows for each connection, and with the page's language.
    """
    former = get_script_prefix()
    set_script_prefix(path_of_site(seat.scope) or "/")
    try:
        with translation.override(seat.language):
            return reverse("admin:sharding_cluster_changelist", current_app=seat.site)
    finally:
        set_script_prefix(former)


def _news(shown: Shown, look: Look) -> News:
    # Its templates and models need Django's apps, which may not be ready when routes are read.
    from sharding_app.dashboard.pages import build

    page, rights, base, language, zone = shown
    with translation.override(language), timezone.override(zone):
        live = build(page, look, rights, base, live=True).live()
    parts = {f"part:{name}": html for name, html in live.pop("parts").items()}
    return News({**parts, **live, TROUBLE: ""})


def _object(texts: Mapping[str, str]) -> str:
    """Return the JSON of an object whose values are JSON already."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in texts.items()) + "}"


class Feeds:
    """One feed for each event loop; `sharding_app.http.routing` gives it to the consumer."""

    def __init__(self) -> None:
        self._feeds: dict[asyncio.AbstractEventLoop, Feed] = {}

    @property
    def here(self) -> Feed:
        loop = asyncio.get_running_loop()
        feed = self._feeds.get(loop)
        if feed is None:
            # A feed holds its loop, so that the loops of a test run would never be let go.
            for each, of_ended in list(self._feeds.items()):
                if each.is_closed():
                    of_ended.end_thread()
                    self._feeds.pop(each, None)
            feed = self._feeds[loop] = Feed()
        return feed

    async def admit(self, scope: Mapping[str, Any], say: Say, end: End) -> Seat | None:
        return await self.here.admit(scope, say, end)

    def hear(self, seat: Seat, words: str) -> None:
        self.here.hear(seat, words)

    def leave(self, seat: Seat) -> None:
        self.here.leave(seat)
