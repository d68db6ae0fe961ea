"""The live views of a process: one subscription for each view of an entity with its arguments,
however many browsers watch it.

A *watch* is one such subscription. A *form* is a way in which it is shown (as a value, or by a
template), encoded once for all. A *seat* is one browser, with the forms that it watches.

Contract: a seat gets the latest state of each of its forms, and maybe fewer states than there were.
Nothing is queued for it but a mark for each form, or a refusal: a slow browser finds the latest. It
gets nothing that it has no right to; rights are checked again while it is there. A watch ends with
its last seat. Seats, forms of a seat and watches are bounded in number; what is beyond is refused.
All of this runs on one event loop. Rights and templates are asked in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, get_args, runtime_checkable

from django.db import close_old_connections

from sharding_app.entities import following, gateway
from sharding_app.entities.registry import registry
from sharding_app.errors import BufferFull, Unavailable
from sharding_app.live import rights, values
from sharding_app.live.topics import Source, Topic, Unknown, key_of, read_token
from sharding_app.protocol.back_off import doubled
from sharding_app.redaction import may_quote, told

logger = logging.getLogger("sharding.client")
T = TypeVar("T")

Refusal = Literal["denied", "unknown", "full"]
REFUSALS: tuple[Refusal, ...] = get_args(Refusal)
WAKE_AT_ONCE = 64
"""Seats that are woken in one turn of the loop. Their messages go out before the next are woken."""
TEND_SECONDS = 1.0
QUIET_SECONDS = 20.0
"""The longest silence, so that a browser notices a lost connection."""
RETRY_SECONDS = 1.0
RETRY_MAX_SECONDS = 30.0
ASK_MESSAGES = 16
ASK_BYTES = 128 * 1024
"""After this number of bytes a browser is asked whether it has got them. While two answers are
missing it gets nothing more: a server such as Daphne would keep everything for one that reads
nothing.
"""
REFUSED_AT_ONCE = 1000
"""Views beyond the limit that are told for one message. Our script's messages name fewer."""
UNANSWERED = 2
MOST_BYTES = 1024 * 1024
"""For a browser that cannot be asked. Then its connection ends, and it comes again."""
MESSAGE_BYTES = 256 * 1024
THREADS = 4
"""For looks at rights."""
TEMPLATE_THREADS = 2
"""Apart from those: while a hook or the database does not answer, public views are shown."""
TEMPLATE_SECONDS = 10.0
"""For one rendering, and its wait for a thread. Then the form is lost, and tried again."""
RIGHTS_SECONDS = 10.0
"""For one look at a login's rights. Later it is not known what it may."""
STALE = 6
"""Intervals after which rights that could not be checked again count no more."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Most of each in one process, and how often rights are checked again."""

    browsers: int = 20_000
    views: int = 50
    "Of one browser."
    watches: int = 20_000
    check_seconds: float = 10.0


@runtime_checkable
class Ears(Protocol):
    """A gateway that knows whether it hears of an entity."""

    def is_silent(self, type_name: str, entity: str) -> bool:
        """Tell whether nothing is heard of an entity that is followed."""
        ...


class RightsUnknown(Exception):
    """Something that is asked for rights does not answer: sessions, the database, a hook."""


class Form:
    """A way in which a watch is shown. Encoded once, however many seats there are."""

    __slots__ = ("body", "failures", "frame", "key", "public", "seats", "topic", "version", "watch")

    def __init__(self, watch: Watch, topic: Topic, key: str) -> None:
        self.watch = watch
        self.topic = topic
        self.public = topic.handler.public
        self.key = key
        self.seats: dict[Seat, None] = {}
        self.version = 0
        "Of the value that is encoded; 0: none is."
        self.body = ""
        "HTML, or the value as JSON."
        self.frame = ""
        "The same for our script."
        self.failures = 0
        "In a row, to encode its value."


class Watch:
    """One subscription of this process."""

    __slots__ = ("forms", "lost", "painter", "silent", "source", "task", "value", "version")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.forms: dict[str, Form] = {}
        self.value: Any = None
        self.version = 0
        self.lost = False
        "Its value cannot be had now."
        self.silent = False
        "Lost since nothing is heard of its entity; its subscription goes on."
        self.task: asyncio.Task[None] | None = None
        self.painter: asyncio.Task[None] | None = None


class Seat:
    """One browser."""

    def __init__(self, hub: Hub, scope: Mapping[str, Any], *, frames: bool, answers: bool) -> None:
        """`frames`: it runs our script, which tells topics apart by their keys.

        `answers`: it can be asked what it has got.
        """
        self.scope = scope
        self.frames = frames
        self.forms: dict[str, Form] = {}
        self.ended = False
        self.checked_at = 0.0
        self.unsure = False
        "Its rights could not be checked: nothing that needs some is shown until they are."
        self.said_at = 0.0
        self._hub = hub
        self._answers = answers
        self._due: dict[str, str] = {}
        "Keys of what it has to get. With a text: that one, else the latest of the form."
        self._quiet = False
        self._sent = 0
        self._sent_bytes = 0
        "Since the browser was last asked."
        self._asked: list[str] = []
        "Questions that it has not answered. A browser can answer only what it has read."
        self._waiter: asyncio.Future[None] | None = None

    @property
    def guarded(self) -> list[Form]:
        """The forms for which it needs a right."""
        return [each for each in self.forms.values() if not each.public]

    async def next(self) -> list[str] | None:
        """Wait for the next message: its items. None: the connection has to end.

        An empty message is a sign of life.
        """
        while not self.ended:
            if self._has_room():
                if items := self._take():
                    return self._say(items)
                if self._quiet:
                    return self._say([])
            elif not self._answers:
                break
            self._waiter = self._hub.loop.create_future()
            await self._waiter
        return None

    def got(self, question: str) -> None:
        """Take in that the browser has got everything up to that question."""
        if question in self._asked:
            del self._asked[: self._asked.index(question) + 1]
            self._hub.wake(self)

    def owe(self, key: str, text: str = "") -> None:
        """Have the browser get that: a text for our script, or the latest state of its form."""
        if text and not self.frames:
            return
        self._due[key] = text
        self._hub.wake(self)

    def say_something(self) -> None:
        """Have the browser get a sign of life."""
        self._quiet = True
        self._hub.wake(self)

    def forget(self, key: str) -> None:
        """Owe nothing for a key any more."""
        self._due.pop(key, None)

    def end(self) -> None:
        """Have its connection end."""
        self.ended = True
        self.release()

    def waits(self) -> bool:
        """Tell whether it waits to be woken."""
        return self._waiter is not None

    def release(self) -> None:
        """Let it look for what it has to get."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _has_room(self) -> bool:
        if self._answers:
            return len(self._asked) < UNANSWERED
        return self._sent_bytes < MOST_BYTES

    def _take(self) -> list[str]:
        items: list[str] = []
        size = 0
        for key, text in list(self._due.items()):
            form = self.forms.get(key)
            if not text and form is not None and not form.public and self._is_unsure():
                continue
            item = text or ("" if form is None else form.frame if self.frames else form.body)
            if items and size + len(item) > MESSAGE_BYTES:
                break
            del self._due[key]
            if item:
                items.append(item)
                size += len(item)
        return items

    def _is_unsure(self) -> bool:
        return self.unsure or self._hub.is_stale(self)

    def _say(self, items: list[str]) -> list[str]:
        self.said_at = self._hub.tended_at
        self._quiet = False
        self._sent += 1
        self._sent_bytes += sum(map(len, items)) + 1
        if self._answers and (self._sent >= ASK_MESSAGES or self._sent_bytes >= ASK_BYTES):
            self._sent = self._sent_bytes = 0
            question = secrets.token_urlsafe(6)
            self._asked.append(question)
            items.append(values.json_of({"ask": question}))
        self._hub.counters["messages"] += 1
        return items


class Hub:
    """The seats and watches of one event loop."""

    def __init__(
        self,
        limits: Limits,
        find_user: Callable[[Mapping[str, Any]], Any],
        may_watch: Callable[[Topic, Any], bool] = rights.may_watch,
    ) -> None:
        """`find_user` reads the user of a connection from the database, as it is now."""
        self.limits = limits
        self.seats: dict[Seat, None] = {}
        self.watches: dict[Source, Watch] = {}
        self.counters: Counter[str] = Counter()
        "messages, lost, and refused by reason."
        self._find_user = find_user
        self._may_watch = may_watch
        self._ready: dict[Seat, None] = {}
        self._wakes = False
        self._tending: asyncio.Task[None] | None = None
        self.tended_at = 0.0
        "Read once in `TEND_SECONDS`, and not for each message of each browser."
        self._checking: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sharding-live")
        self._painters = ThreadPoolExecutor(TEMPLATE_THREADS, thread_name_prefix="sharding-live-page")

    # -- For connections ---------------------------------------------------------------------------

    def admit(self, scope: Mapping[str, Any], *, frames: bool, answers: bool) -> Seat | None:
        """Give a browser a seat, which has to leave in the end. None: the process is full."""
        if len(self.seats) >= self.limits.browsers:
            self.counters["refused_full"] += 1
            return None
        seat = Seat(self, scope, frames=frames, answers=answers)
        seat.said_at = seat.checked_at = self.loop.time()
        self.seats[seat] = None
        if self._tending is None:
            self.tended_at = seat.said_at
            self._tending = self.loop.create_task(self._tend(), name="sharding live")
        return seat

    async def ask_rights(self, scope: Mapping[str, Any], tokens: Iterable[str]) -> dict[str, Topic | Refusal]:
        """Return the topics that may be watched, and why others may not.

        Raises RightsUnknown.
        """
        found: dict[str, Topic | Refusal] = {}
        for token in tokens:
            try:
                topic = read_token(token)
                topic.handler  # noqa: B018 (raises)
                found[token] = topic
            except Unknown:
                found[token] = "unknown"
        guarded = [each for each in found.values() if isinstance(each, Topic) and not each.handler.public]
        if guarded:
            may = await self._rights(scope, guarded)
            for token, topic_or_why in found.items():
                if isinstance(topic_or_why, Topic) and not may.get(topic_or_why, True):
                    found[token] = "denied"
        return found

    async def watch(self, seat: Seat, tokens: list[str]) -> None:
        """Let a seat watch these too. Where that is refused, the browser is told."""
        if len(seat._due) > 2 * self.limits.views:  # it asks and asks, and reads no answer
            seat.end()
            return
        fresh = [each for each in dict.fromkeys(tokens) if key_of(each) not in seat.forms]
        room = max(0, self.limits.views - len(seat.forms))
        for token in fresh[room : room + REFUSED_AT_ONCE]:
            self.refuse(seat, key_of(token), "full")
        answers = await self.ask_rights(seat.scope, fresh[:room])
        if not seat.guarded:
            seat.checked_at = self.loop.time()
        for token, found in answers.items():
            if seat.ended or seat not in self.seats:
                return
            self.attach(seat, token, found)

    def attach(self, seat: Seat, token: str, found: Topic | Refusal) -> None:
        """Let a seat watch what `ask_rights` has found."""
        key = key_of(token)
        if isinstance(found, str):
            self.refuse(seat, key, found)
        elif key in seat.forms:
            return
        elif (watch := self._watch(found.source)) is None:
            self.refuse(seat, key, "full")
        else:
            form = watch.forms.get(key)
            if form is None:
                form = watch.forms[key] = Form(watch, found, key)
            form.seats[seat] = None
            seat.forms[key] = form
            if watch.lost:
                seat.owe(key, _lost(key))
            elif watch.version and form.version == watch.version:
                seat.owe(key)
            elif watch.version:
                self._paint(watch)

    def refuse(self, seat: Seat, key: str, why: Refusal) -> None:
        """Tell a browser that it does not get that."""
        self.counters[f"refused_{why}"] += 1
        if not seat.frames and not seat.forms:
            seat.end()  # it comes again, and is told by a status
        seat.owe(key, values.json_of({"key": key, "refused": why}))

    def forget(self, seat: Seat, key: str) -> None:
        """Let a seat watch that no more."""
        form = seat.forms.pop(key, None)
        seat.forget(key)
        if form is None:
            return
        del form.seats[seat]
        watch = form.watch
        if not form.seats:
            del watch.forms[key]
        if not watch.forms:
            self._end(watch)

    def leave(self, seat: Seat) -> None:
        """Forget a seat."""
        if seat in self.seats:
            del self.seats[seat]
            self._ready.pop(seat, None)
            for key in list(seat.forms):
                self.forget(seat, key)
            seat.end()
        if not self.seats and self._tending is not None:
            self._tending.cancel()
            self._tending = None

    def wake(self, seat: Seat) -> None:
        """Have a seat look soon for what it has to get."""
        if seat.waits():
            self._ready[seat] = None
            if not self._wakes:
                self._wakes = True
                self.loop.call_soon(self._wake_some)

    async def close(self) -> None:
        """End everything, as its loop ends."""
        for seat in list(self.seats):
            self.leave(seat)
        self.end_threads()

    def end_threads(self) -> None:
        """End the threads once they have nothing to do."""
        for pool in (self._threads, self._painters):
            pool.shutdown(wait=False, cancel_futures=True)

    def _wake_some(self) -> None:
        for seat in list(itertools.islice(self._ready, WAKE_AT_ONCE)):
            del self._ready[seat]
            seat.release()
        self._wakes = bool(self._ready)
        if self._wakes:
            self.loop.call_soon(self._wake_some)

    # -- Watches -----------------------------------------------------------------------------------

    def _watch(self, source: Source) -> Watch | None:
        watch = self.watches.get(source)
        if watch is None:
            if len(self.watches) >= self.limits.watches:
                return None
            watch = self.watches[source] = Watch(source)
            watch.task = self.loop.create_task(self._run(watch), name="sharding live view")
        return watch

    def _end(self, watch: Watch) -> None:
        if self.watches.get(watch.source) is watch:
            del self.watches[watch.source]
        for task in (watch.task, watch.painter):
            if task is not None and task is not asyncio.current_task():
                task.cancel()

    async def _run(self, watch: Watch) -> None:
        """Follow the view, for as long as there is a seat."""
        failures = 0
        while True:
            try:
                async with contextlib.aclosing(_changes(watch.source)) as changes:
                    async for value in changes:
                        failures = 0
                        watch.value, watch.lost, watch.silent = value, False, False
                        watch.version += 1
                        self._paint(watch)
            except BufferFull:
                for form in list(watch.forms.values()):
                    self._refuse_all(form, "full")
                return
            except Exception as error:  # noqa: BLE001 (told and logged)
                watch.silent = False  # lost until there is a value
                self._lose(watch, error)
            failures += 1
            await asyncio.sleep(_pause(failures))

    def _lose(self, watch: Watch, error: Exception) -> None:
        """Tell the browsers that the value cannot be had now; it is tried again."""
        self.counters["lost"] += 1
        if not watch.lost:
            source = watch.source
            logger.warning(
                "the view %s of %s cannot be shown now: %s", source.view, source.type_name, told(error),
                extra={"action": "live_lost"},
            )  # fmt: skip
        watch.lost = True
        for form in watch.forms.values():
            for seat in form.seats:
                seat.owe(form.key, _lost(form.key))

    def _listen(self, watch: Watch, *, is_silent: bool) -> None:
        """Tell that a view is lost while nothing is heard of its entity, and show it again then."""
        if is_silent and not watch.lost:
            watch.silent = True
            self._lose(watch, Unavailable("nothing is heard of its entity"))
        elif watch.silent and not is_silent:
            watch.silent = watch.lost = False
            for form in watch.forms.values():
                if watch.version and form.version == watch.version:
                    for seat in form.seats:
                        seat.owe(form.key)
            if watch.version:
                self._paint(watch)

    def _refuse_all(self, form: Form, why: Refusal) -> None:
        for seat in list(form.seats):
            self.forget(seat, form.key)
            self.refuse(seat, form.key, why)

    # -- Forms -------------------------------------------------------------------------------------

    def _paint(self, watch: Watch) -> None:
        """Encode the value for all forms; those with a template in a thread."""
        behind = False
        for form in list(watch.forms.values()):
            if form.version == watch.version:
                continue
            if form.topic.template:
                behind = True
                continue
            try:
                self._show(form, values.json_of(values.plain(watch.value)), watch.version)
            except Exception as error:  # noqa: BLE001 (told and logged)
                self._fail(form, watch.version, error)
        if behind and watch.painter is None:
            watch.painter = self.loop.create_task(self._paint_templates(watch), name="sharding live page")

    async def _paint_templates(self, watch: Watch) -> None:
        try:
            while behind := [each for each in watch.forms.values() if each.version != watch.version]:
                # Oldest first: each gets its turn where values change faster than they are painted.
                form = min(behind, key=lambda each: each.version)
                value, version = watch.value, watch.version
                try:
                    async with asyncio.timeout(TEMPLATE_SECONDS):
                        html = await self._in_thread(
                            self._painters, partial(values.html_of, form.topic, value)
                        )
                    self._show(form, html, version)
                except Exception as error:  # noqa: BLE001 (told and logged)
                    self._fail(form, version, error)
        finally:
            watch.painter = None

    def _show(self, form: Form, body: str, version: int) -> None:
        key = values.json_of(form.key)
        form.body = body
        shown = f'"html":{values.json_of(body)}' if form.topic.template else f'"value":{body}'
        form.frame = f'{{"key":{key},{shown}}}'
        form.version, form.failures = version, 0
        if form.watch.lost:
            return  # lost while a thread painted it: the browsers have been told, and this value is old
        for seat in form.seats:
            seat.owe(form.key)

    def _fail(self, form: Form, version: int, error: Exception) -> None:
        logger.error(
            "the view %s of %s cannot be shown: %s", form.topic.source.view, form.topic.source.type_name,
            told(error), exc_info=error if may_quote() else None, extra={"action": "live_lost"},
        )  # fmt: skip
        form.version, form.body = version, ""
        form.frame = _lost(form.key)
        if not form.failures:
            for seat in form.seats:
                seat.owe(form.key)
        form.failures += 1
        self.loop.call_later(_pause(form.failures), self._paint_anew, form, version)

    def _paint_anew(self, form: Form, version: int) -> None:
        """Try again what has failed: a template may have asked a database that was away."""
        watch = form.watch
        if form.failures and watch.version == form.version == version and watch.forms.get(form.key) is form:
            form.version = 0
            self._paint(watch)

    # -- Rights ------------------------------------------------------------------------------------

    async def _tend(self) -> None:
        """Give signs of life, and check rights again."""
        while True:
            await asyncio.sleep(TEND_SECONDS)
            now = self.tended_at = self.loop.time()
            for seat in self.seats:
                if now - seat.said_at >= QUIET_SECONDS:
                    seat.say_something()
            if (ears := _current_ears()) is not None:
                for source, watch in list(self.watches.items()):
                    self._listen(watch, is_silent=ears.is_silent(source.type_name, source.entity))
            if self._checking is None:
                self._checking = self.loop.create_task(self._check_due(now), name="sharding live rights")

    async def _check_due(self, now: float) -> None:
        """Check the rights of seats whose time has come: those of one login together."""
        try:
            logins: dict[bytes, list[Seat]] = {}
            for seat in self.seats:
                if now - seat.checked_at >= self.limits.check_seconds and seat.guarded:
                    logins.setdefault(_login(seat.scope), []).append(seat)
            waiting = list(logins.values())

            async def work() -> None:
                while waiting:
                    await self._check(waiting.pop())

            await asyncio.gather(*(work() for _ in range(THREADS)))
        finally:
            self._checking = None

    async def _check(self, seats: list[Seat]) -> None:
        topics = list({form.topic: None for seat in seats for form in seat.guarded})
        try:
            may = await self._rights(seats[0].scope, topics)
        except RightsUnknown as error:
            logger.info("rights of browsers cannot be checked: %s", error, extra={"action": "live_unsure"})
            for seat in seats:
                seat.unsure = True
            return
        for seat in seats:
            seat.checked_at, seat.unsure = self.loop.time(), False
            for form in seat.guarded:
                if not may.get(form.topic, True):
                    self.forget(seat, form.key)
                    self.refuse(seat, form.key, "denied")
            self.wake(seat)

    def is_stale(self, seat: Seat) -> bool:
        """Tell whether its rights were checked too long ago."""
        return self.loop.time() - seat.checked_at > STALE * self.limits.check_seconds

    async def _rights(self, scope: Mapping[str, Any], topics: list[Topic]) -> dict[Topic, bool]:
        """Ask for rights. Raises RightsUnknown."""
        try:
            async with asyncio.timeout(RIGHTS_SECONDS):
                return await self._in_thread(self._threads, partial(self._judge, scope, topics))
        except Exception as error:
            raise RightsUnknown(told(error)) from error

    def _judge(self, scope: Mapping[str, Any], topics: list[Topic]) -> dict[Topic, bool]:
        user = self._find_user(scope)
        return {each: self._may_watch(each, user) for each in topics}

    async def _in_thread(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await self.loop.run_in_executor(pool, _with_connections, work)


def _with_connections(work: Callable[[], T]) -> T:
    """Work with Django's database connections as a request does."""
    close_old_connections()
    try:
        return work()
    finally:
        close_old_connections()


def _changes(source: Source) -> Any:
    entity_type = registry.get(source.type_name)
    ref = entity_type.ref_class(source.entity)
    handler = entity_type.handler(source.view)
    return following.changes(ref, handler.decode_result, lambda: ref._ref_ask(handler.name, source.args))


def _current_ears() -> Ears | None:
    """Return the process's gateway, if it follows entities of other processes."""
    try:
        found = gateway.current()
    except Unavailable:
        return None
    return found if isinstance(found, Ears) else None


def _pause(failures: int) -> float:
    pause = doubled(RETRY_SECONDS, failures - 1, RETRY_MAX_SECONDS)
    return pause * random.uniform(0.75, 1.25)  # noqa: S311 (no secret)


def _lost(key: str) -> str:
    return values.json_of({"key": key, "lost": True})


def _login(scope: Mapping[str, Any]) -> bytes:
    """Return what tells the user of a connection: its cookies."""
    return b"; ".join(value for name, value in scope["headers"] if name == b"cookie")
