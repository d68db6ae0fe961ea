"""One entity alone in memory: given events, when a command, then events, reply and state.

    given(ItemAdded("book", 1)).when(Cart.add, "book", 2).then(
        events=[ItemAdded("book", 2)], reply=3, state={"items": {"book": 3}}
    )

``sent`` are the durable messages of a call, and ``timers`` the durable timers that wait.
``advance(60)`` lets a minute pass, in which timers fire:

    given(Opened()).when(Auction.bid, "ann", 5).then(
        sent=[Bidder.ref("bob").outbid.bind(5)], timers={"closing": Auction.ref("1").close.bind()}
    ).advance(3600).then(events=[Closed()], timers={})

This needs no cluster, loop or database. Calls run as on a node: arguments and replies go through
their codecs, and the limits of their sizes hold. After each call the entity is rebuilt from its
journal and compared, so a handler that changes state outside its events fails the test.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

import msgspec
from django.conf import settings
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from sharding_app.adapters.django.database import OF_PERSIST, refuse_broken
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.personal import revived
from sharding_app.entities.remote import Bound, Unbound
from sharding_app.entities.staging import Record, StagedMessage
from sharding_app.errors import InvalidCall, NotSerializable, ShardingError
from sharding_app.runtime.execution.state_guard import differing, fingerprint
from sharding_app.settings.load import get_settings
from sharding_app.testing.local import LocalHost, Timer, bound

T = TypeVar("T")
UNSAID: Any = object()
"""Stands for an argument of `then` that is not compared."""


class Given:
    """The history that an entity starts from."""

    def __init__(
        self,
        events: tuple[object, ...],
        state: Mapping[str, Any] | None,
        entity_id: str,
        now: datetime | None = None,
    ) -> None:
        self._events = events
        self._state = state
        self._entity_id = entity_id
        self._now = now

    def when(self, call: Any, /, *args: Any, **kwargs: Any) -> "Scenario":
        """Create the entity and call it: ``when(Cart.add, "book", 2)``."""
        name, entity_type = _called(call)
        state = None if self._state is None else msgspec.json.encode(self._state)
        config = get_settings().node() if settings.configured else None
        host = _Host(
            entity_type, self._entity_id, events=self._events, state=state, now=self._now, config=config
        )
        return Scenario(host)._call(name, args, kwargs)


class Scenario:
    """An entity in a test: the results of the last call, and further calls."""

    def __init__(self, host: "_Host") -> None:
        self._host = host
        self.reply: Any = None
        "The reply to the last call."
        self.error: ShardingError | None = None
        "The error of the last call."

    @property
    def events(self) -> list[object]:
        """The events that the last call stored."""
        return list(self._host.events)

    @property
    def state(self) -> Any:
        """The entity's state, as plain data; personal values are `Personal`."""
        return revived(msgspec.json.decode(self._host.state()))

    @property
    def sent(self) -> list[Bound]:
        """The durable messages that the last call sent, as ``Account.ref(to).deposit.bind(5)``."""
        return [bound(each) for each in self._host.messages]

    @property
    def messages(self) -> list[StagedMessage]:
        """The same, with the commands that their answers call."""
        return list(self._host.messages)

    @property
    def timers(self) -> dict[str, Timer]:
        """The durable timers that wait, by key."""
        return dict(self._host.timers)

    @property
    def cancelled(self) -> list[str]:
        """The keys of the timers that the last call cancelled."""
        return list(self._host.cancelled)

    @property
    def stopped(self) -> bool:
        """Whether the last call asked for the entity's end. A stop message is not delivered."""
        return self._host.stopped

    @property
    def now(self) -> datetime:
        """The entity's clock."""
        return self._host.now

    def advance(self, seconds: float | timedelta) -> Self:
        """Let time pass; timers that come due call their commands, and the last of these counts as
        the last call. If durable ones fail, the others go on, and the first error is that of the
        call.
        """
        self.reply = self.error = None
        try:
            self._run(self._host.advance(seconds))
        except ShardingError as error:
            self.error = error
        self._host.check_fold()
        return self

    def when(self, call: Any, /, *args: Any, **kwargs: Any) -> Self:
        """Call it again."""
        name, entity_type = _called(call)
        if entity_type.cls is not self._host.entity_type.cls:
            raise InvalidCall(f"this test is about {self._host.entity_type.name}, not {entity_type.name}")
        return self._call(name, args, kwargs)

    def next_write_fails(self, reason: str = "the test makes this write fail") -> Self:
        """Make the next call's write fail."""
        self._host.refuse = reason
        return self

    def then(
        self,
        *,
        events: Any = UNSAID,
        reply: Any = UNSAID,
        state: Any = UNSAID,
        sent: Any = UNSAID,
        timers: Any = UNSAID,
        cancelled: Any = UNSAID,
    ) -> Self:
        """Compare the results of the last call, which must have succeeded.

        `timers` are all that wait: each key with its call.
        """
        if self.error is not None:
            raise AssertionError(f"the call raised {type(self.error).__name__}: {self.error}") from self.error
        _equal("sent", self.sent, sent)
        _equal("timers", {key: each.call for key, each in self._host.timers.items()}, timers)
        _equal("cancelled", self.cancelled, cancelled)
        return self._compare(events, reply, state)

    def then_raises(
        self, kind: type[ShardingError], said: str = "", *, events: Any = UNSAID, state: Any = UNSAID
    ) -> Self:
        """Check that the last call raised this error, with `said` in its text."""
        if self.error is None:
            raise AssertionError(f"expected {kind.__name__}, but the call returned {self.reply!r}")
        if not isinstance(self.error, kind) or said not in str(self.error):
            raise AssertionError(
                f"expected {kind.__name__} with {said!r}, not {type(self.error).__name__}: {self.error}"
            ) from self.error
        return self._compare(events, UNSAID, state)

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Self:
        self.reply = self.error = None
        try:
            self.reply = self._run(self._host.run(name, *args, **kwargs))
        except ShardingError as error:
            self.error = error
        self._host.check_fold()
        return self

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if not settings.configured:
            return _finished(work)
        from sharding_app.testing import modes

        self._host.shared = shared = modes.open_connections()

        async def on_connections() -> T:
            await modes.share(shared)
            try:
                return await work
            finally:
                await modes.give_back(shared)

        return _finished(on_connections() if shared else work)

    def _compare(self, events: Any, reply: Any, state: Any) -> Self:
        _equal("reply", self.reply, reply)
        _equal("events", self.events, events)
        _equal("state", self.state if state is not UNSAID else None, state)
        return self


def given(
    *events: object,
    state: Mapping[str, Any] | None = None,
    entity_id: str = "1",
    now: datetime | None = None,
) -> Given:
    """Return a history: events, or the last `state` of a durable-state entity.

    `now`: its clock at the beginning; the present time unless it is said.
    """
    return Given(events, state, entity_id, now)


class _Host(LocalHost):
    """A `LocalHost` whose next write may be told to fail, with the database of the test."""

    refuse: str | None = None
    shared: Mapping[str, BaseDatabaseWrapper] = {}
    "The connections of the test that are in its transaction."

    async def in_thread(self, function: Callable[[], T]) -> T:
        if not self.shared:
            return await super().in_thread(function)
        from sharding_app.testing import modes

        def run() -> T:
            with modes.borrowed(self.shared):
                return function()

        return await super().in_thread(run)

    def together(self, functions: Sequence[Callable[[], object]]) -> None:
        alias = get_settings().database if self.shared else ""
        if alias not in self.shared:
            super().together(functions)
            return
        *of_user, append = functions
        with transaction.atomic(using=alias):
            super().together([*of_user, lambda: refuse_broken(connections[alias], OF_PERSIST), append])

    def check_fold(self) -> None:
        """Check that the state equals the one that the journal gives."""
        if self.entity_type.kind != "event_sourced":
            return
        now, folded = self.state(), self.entity_type.dump_state(recovered := self._recovered())
        if now != folded:
            parts = fingerprint(self.entity_type, self.entity), fingerprint(self.entity_type, recovered)
            names = ", ".join(map(repr, differing(self.entity_type, self.entity, *parts)))
            raise AssertionError(
                f"its state is {now.decode()}, but its events give {folded.decode()}:"
                f" {names or 'it'} is changed outside its @applies methods, or these depend on more than the event"
            )

    def _append(self, records: list[Record]) -> None:
        if self.refuse is not None and records:
            reason, self.refuse = self.refuse, None
            raise NotSerializable(
                f"{self.entity_type.name} {self.entity_id!r}: its events were refused: {reason}"
            )
        super()._append(records)


def _called(call: Any) -> tuple[str, EntityType]:
    entity_type = getattr(call.owner, "_sharding_type", None) if isinstance(call, Unbound) else None
    if not isinstance(entity_type, EntityType):
        raise InvalidCall(
            f"when() needs a command or query of an entity class, such as Cart.add, not {call!r}"
        )
    return call.name, entity_type


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, also where a loop is running already."""
    if asyncio._get_running_loop() is None:
        return asyncio.run(work)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def _equal(what: str, found: Any, wanted: Any) -> None:
    if wanted is not UNSAID and found != wanted:
        raise AssertionError(f"{what}: got {found!r}, expected {wanted!r}")
