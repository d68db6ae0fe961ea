"""The followers of a process: one question to an entity's home at a time, however many follow it.

A *feed* is one followed entity. Its loop asks for the events after the last one that it knows, and
keeps the newest of them for its subscriptions. A *subscription* has a number of its own. One whose
next events the feed keeps no longer reads by itself. So a slow one holds up no other, and nothing
is kept for it.

Contract: a subscription gets each event after its number once, in order and without a gap, or
`EntityErased` or `EventsGone`. It never gets an error that passes: then it is asked again. Feeds
are bounded in number; what a feed keeps is bounded in number and bytes. All of this runs on one
event loop; `FollowingPortal` leads there from other threads and loops.
"""

import asyncio
import concurrent.futures
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from sharding_app.errors import (
    BufferFull,
    EntityErased,
    EventsGone,
    InvalidCall,
    NotSerializable,
    ShardingError,
    Unavailable,
)
from sharding_app.protocol.back_off import doubled
from sharding_app.protocol.builtin_commands import EVENTS
from sharding_app.protocol.call import LONGEST_SECONDS, Call
from sharding_app.protocol.following import (
    MARGIN_SECONDS,
    MAX_EVENTS,
    WAIT_SECONDS,
    FollowedEvent,
    News,
    Question,
    decode_news,
    encode,
)
from sharding_app.redaction import told
from sharding_app.runtime.base.waiting import set_within

T = TypeVar("T")

KEPT_EVENTS = 256
KEPT_BYTES = 512 * 1024
"""Newest events that a feed keeps for its subscriptions."""
RETRY_SECONDS = 0.1
RETRY_MAX_SECONDS = 2.0
FULL_SECONDS = 5.0
"""Pause after a home has refused a question because too many wait there."""

SILENT_SECONDS = 5.0
"""A failover takes less. Then what is known of an entity may be old."""

FINAL = (InvalidCall, NotSerializable, EventsGone)
"""Errors that stay. After any other one the question is asked again."""


class Hub:
    """All feeds of a process, on its event loop."""

    def __init__(self, ask: Callable[[Call], Awaitable[bytes]], limit: int) -> None:
        """`limit`: most entities that the process follows."""
        self.feeds: dict[tuple[str, str], Feed] = {}
        self.limit = limit
        self.closed = ""
        "Why nothing is followed any more."
        self._ask = ask
        self._closing = asyncio.Event()

    def subscribe(self, type_name: str, entity: str) -> "Subscription":
        """Follow an entity. Close the subscription in the end."""
        feed = self.feeds.get((type_name, entity))
        if feed is None:
            if len(self.feeds) >= self.limit:
                raise BufferFull(
                    f"this process follows {len(self.feeds)} entities, and may follow no more"
                    " (SHARDING['FOLLOWERS'])"
                )
            feed = self.feeds[type_name, entity] = Feed(self, type_name, entity)
        return Subscription(feed)

    def is_silent(self, type_name: str, entity: str) -> bool:
        """Tell whether nothing has been heard of a followed entity for a while. From any thread."""
        feed = self.feeds.get((type_name, entity))
        since = None if feed is None else feed.silent_since
        return since is not None and time.monotonic() - since >= SILENT_SECONDS

    async def question(
        self, type_name: str, entity: str, question: Question, feed: "Feed | None" = None
    ) -> News:
        """Ask the home of an entity until it answers. Raises errors that stay."""
        failures = 0
        while True:
            timeout = question.wait + MARGIN_SECONDS
            try:
                call = Call(type_name, entity, EVENTS, encode(question), timeout)
                news = decode_news(await self._ask(call))
                if feed is not None:
                    feed.silent_since = None
                return news
            except FINAL:
                raise
            except ShardingError as error:
                if self.closed:
                    raise
                failures += 1
                if feed is not None and feed.silent_since is None:
                    feed.silent_since = time.monotonic()
                full = isinstance(error, BufferFull)
                pause = FULL_SECONDS if full else doubled(RETRY_SECONDS, failures, RETRY_MAX_SECONDS)
                await self.pause(pause)

    async def pause(self, seconds: float) -> None:
        """Let time pass, unless all of this ends."""
        await set_within(self._closing, seconds)

    def close(self, why: str) -> None:
        """End all feeds; their subscriptions get an error."""
        self.closed = why
        self._closing.set()
        for feed in list(self.feeds.values()):
            feed.close()


class Feed:
    """One entity that this process follows."""

    def __init__(self, hub: Hub, type_name: str, entity: str) -> None:
        self.hub = hub
        self.type_name = type_name
        self.entity = entity
        self.subscriptions: set[Subscription] = set()
        self.last = -1
        "Number of the last event that it has heard of; -1: it has heard of none."
        self.stamp = 0
        self.life = 0
        "Raised when the entity's history turns out to be another one."
        self.error: ShardingError | None = None
        "An error that stays, of the feed's last question."
        self.silent_since: float | None = None
        "Since when its questions have failed."
        self._kept: deque[FollowedEvent] = deque()
        "The newest events without a gap, up to `last`."
        self._kept_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._changed: asyncio.Future[None] | None = None

    # -- For subscriptions -------------------------------------------------------------------------

    def start(self, after: int, stamp: int) -> None:
        """Begin to ask: for events after a number, or (-1) for the number of the last one."""
        if after > self.last:
            self._restart(after, stamp)
        if self._task is None:
            self.error = None
            self._task = asyncio.get_running_loop().create_task(self._run(), name="sharding follow")

    def kept_after(self, after: int) -> list[FollowedEvent] | None:
        """Return the events after a number that are kept; None: some of them are not."""
        if after >= self.last:
            return []
        if not self._kept or self._kept[0].seq > after + 1:
            return None
        return [each for each in self._kept if each.seq > after]

    async def changed(self) -> None:
        """Wait until the feed has heard something new."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def leave(self, subscription: "Subscription") -> None:
        """Forget a subscription. The feed ends with its present question, if no other one comes."""
        self.subscriptions.discard(subscription)
        if not self.subscriptions and self._task is None:
            self._end()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._end()

    # -- Its loop ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self.subscriptions:
                events = any(each.wants_events for each in self.subscriptions)
                limit = MAX_EVENTS if events and self.last >= 0 else 0
                question = Question(self.last, self.stamp, limit, WAIT_SECONDS)
                news = await self.hub.question(self.type_name, self.entity, question, self)
                if self.last == question.after:  # else a subscription has moved the feed on meanwhile
                    self._take(question, news)
        except Exception as error:  # noqa: BLE001  (its subscriptions raise it)
            if not isinstance(error, ShardingError):
                error = ShardingError(f"a bug: following ended by {told(error)}")
            self.error = error
        finally:
            self._task = None
            self._wake()
            if not self.subscriptions:
                self._end()

    def _take(self, question: Question, news: News) -> None:
        if news.state == "erased" or news.last < self.last:
            self.life += 1
            self._restart(*((0, 0) if question.limit else (news.last, news.stamp)))
        elif news.events:
            if news.state == "trimmed" or not question.limit:
                self._drop()
            for each in news.events:
                self._keep(each)
            self.last, self.stamp = news.last, news.events[-1].at
        elif news.last != self.last:
            self._restart(news.last, news.stamp)
        else:
            self.stamp = self.stamp or news.stamp
            return
        self._wake()

    def _restart(self, last: int, stamp: int) -> None:
        """Go on from another number: the events before it are not kept here."""
        self._drop()
        self.last, self.stamp = last, stamp

    def _keep(self, event: FollowedEvent) -> None:
        self._kept.append(event)
        self._kept_bytes += len(event.payload)
        while len(self._kept) > KEPT_EVENTS or (self._kept_bytes > KEPT_BYTES and len(self._kept) > 1):
            self._kept_bytes -= len(self._kept.popleft().payload)

    def _drop(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    def _end(self) -> None:
        self._drop()
        if self.hub.feeds.get((self.type_name, self.entity)) is self:
            del self.hub.feeds[self.type_name, self.entity]
        self._wake()


class Subscription:
    """One follower of an entity."""

    def __init__(self, feed: Feed) -> None:
        self.wants_events = False
        self._feed = feed
        self._life: int | None = None
        "The feed's, when this subscription came level with it."
        self._life_seen = feed.life
        "The feed's, when a number was told last."
        feed.subscriptions.add(self)

    async def events(self, after: int, stamp: int) -> Sequence[FollowedEvent]:
        """Wait for the events after a number. `stamp`: when the event of that number was stored; 0:
        it is not known.
        """
        self.wants_events = True
        feed, in_vain = self._feed, False
        while True:
            self._check(after, stamp)
            kept = None if self._life is None else feed.kept_after(after)
            if kept and not in_vain:
                return kept
            if kept == []:
                if feed.error is not None:
                    raise feed.error
                await feed.changed()
                in_vain = False
                continue
            if in_vain:  # the feed has heard of more than this home shows yet, or of a former life
                await feed.hub.pause(RETRY_SECONDS)
            news = await feed.hub.question(feed.type_name, feed.entity, Question(after, stamp, MAX_EVENTS))
            if news.state:
                raise self._gone(news, after)
            if news.events:
                return news.events
            in_vain = True
            self._life = feed.life
            feed.start(after, stamp)

    async def moved(self, seen: int) -> int:
        """Wait until the entity's last event is another one; return its number. -1: return it once
        it is known.
        """
        feed = self._feed
        feed.start(-1, 0)
        while feed.last == -1 or (feed.last == seen and feed.life == self._life_seen):
            await feed.changed()
            self._check_open()
            if feed.error is not None:
                raise feed.error
        self._life_seen = feed.life
        return feed.last

    def close(self) -> None:
        """Follow no more."""
        self._feed.leave(self)

    def _check_open(self) -> None:
        if self._feed.hub.closed:
            raise Unavailable(self._feed.hub.closed, code="stopped")

    def _check(self, after: int, stamp: int) -> None:
        self._check_open()
        if self._life is not None and self._life != self._feed.life:
            self._life = None
            # With a time the home says by the next question which life these events are of.
            if after and not stamp:
                raise self._gone(News(0, state="erased"), after)

    def _gone(self, news: News, after: int) -> ShardingError:
        feed = self._feed
        what = f"{feed.type_name} {feed.entity!r}"
        params: dict[str, Any] = {"type": feed.type_name, "entity_id": feed.entity, "after": after}
        if news.state == "erased":
            text = f"{what}: the history up to event {after} is gone: it was erased or archived, or the server lost it"
            return EntityErased(text, params=params)
        params["first"] = news.events[0].seq
        text = f"{what}: the events after {after} are deleted up to {params['first']}"
        return EventsGone(text, params=params)


class Submit(Protocol):
    """Runs a coroutine on the hub's loop. Raises Unavailable if that has ended, or ends."""

    def __call__(self, job: Coroutine[Any, Any, T], /) -> "concurrent.futures.Future[T]": ...


class FollowingPortal:
    """Leads from any thread and any event loop to the hub's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hub: Hub, submit: Submit) -> None:
        self.hub = hub
        self.submit = submit
        self._loop = loop

    def follow(self, type_name: str, entity: str) -> "Following":
        """Follow an entity, from the first use on."""
        return Following(self, type_name, entity)

    async def run(self, job: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the hub's loop, from any loop."""
        if asyncio.get_running_loop() is self._loop:
            return await job
        return await asyncio.wrap_future(self.submit(job))

    def later(self, function: Callable[[], object]) -> None:
        """Call a function on the hub's loop, if that has not ended."""
        if asyncio._get_running_loop() is self._loop:
            function()
            return
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            return  # the loop has ended, and the hub with it


class Following:
    """A subscription for code on any loop, or on none (`entities.gateway.Following`)."""

    def __init__(self, portal: FollowingPortal, type_name: str, entity: str) -> None:
        self._portal = portal
        self._address = type_name, entity
        self._subscription: Subscription | None = None
        self._closed = False

    async def events(self, after: int, stamp: int) -> Sequence[FollowedEvent]:
        return await self._portal.run(self._events(after, stamp))

    async def moved(self, seen: int) -> int:
        return await self._portal.run(self._moved(seen))

    def events_sync(self, after: int, stamp: int, timeout: float | None) -> Sequence[FollowedEvent] | None:
        """Return None when nothing has come for that many seconds."""
        return self._within(self._events(after, stamp), timeout)

    def moved_sync(self, seen: int, timeout: float | None) -> int | None:
        return self._within(self._moved(seen), timeout)

    def close(self) -> None:
        self._portal.later(self._close)

    async def _events(self, after: int, stamp: int) -> Sequence[FollowedEvent]:
        return await self._subscribed().events(after, stamp)

    async def _moved(self, seen: int) -> int:
        return await self._subscribed().moved(seen)

    def _subscribed(self) -> Subscription:
        if self._closed:
            # A job that was cancelled before it began begins nevertheless, maybe behind `_close`.
            raise Unavailable("this follower was closed", code="stopped")
        if self._subscription is None:
            self._subscription = self._portal.hub.subscribe(*self._address)
        return self._subscription

    def _close(self) -> None:
        self._closed = True
        if self._subscription is not None:
            self._subscription.close()

    def _within(self, job: Coroutine[Any, Any, T], timeout: float | None) -> T | None:
        future = self._portal.submit(job)
        try:
            return future.result(None if timeout is None else min(timeout, LONGEST_SECONDS))
        except concurrent.futures.TimeoutError:
            if future.cancel():
                return None
            return future.result()
        except BaseException:
            future.cancel()
            raise
