"""`LocalHost`: one entity alone in memory, hosted exactly by the contract in `types`, without a
cluster.

The test kit stands on it ("given events, when command, then events, reply, state"). It shows a host
all its duties: check, run, encode the reply, commit, answer; after a failure drop the staged events
and rebuild. `LocalGateway` holds one for each id, so that refs work. Concurrent calls are not
queued: await one after another.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec

from sharding_app.entities.context import EntityContext
from sharding_app.entities.entity_type import EntityType, Handler
from sharding_app.entities.failure import failure_of
from sharding_app.entities.messages import decode_message, encode_message
from sharding_app.entities.registry import registry
from sharding_app.entities.remote import Bound
from sharding_app.entities.staging import Record, StagedMessage, Staging, args_limit, refuse_too_large
from sharding_app.errors import NotSerializable, PartiallyApplied, Rejected, ShardingError
from sharding_app.protocol.builtin_commands import EXISTS, IDS, MESSAGE
from sharding_app.protocol.call import Call
from sharding_app.protocol.delivery import recurrence
from sharding_app.protocol.listing import decode_wanted, encode_page, page_of
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.base.sizes import (
    arguments_too_large,
    reply_not_kept,
    reply_not_sent,
    state_too_large,
)
from sharding_app.runtime.execution.context import timer_call
from sharding_app.runtime.hosting.type_host import REPLY_ROOM_BYTES

logger = logging.getLogger("sharding.entity")
T = TypeVar("T")

SIZES = ("arguments_too_large", "reply_too_large", "state_too_large")
"""Codes of errors that a host raises beside its handlers."""


class Timer(NamedTuple):
    """A durable timer that waits."""

    call: Bound
    due: datetime
    message: StagedMessage


class LocalContext:
    """The context of an entity alone: its timers in memory fire when its host's clock is moved."""

    workers = 0
    sender = None

    def __init__(self, host: LocalHost) -> None:
        self._host = host
        #: Its timers in memory, by key: when they are due, and what they call.
        self.timers: dict[str, tuple[datetime, str, bytes]] = {}

    @property
    def type_name(self) -> str:
        return self._host.entity_type.name

    @property
    def ref(self) -> Any:
        return self._host.entity_type.ref_class(self._host.entity_id)

    def now(self) -> datetime:
        return self._host.now

    def stop(self) -> None:
        self._host.stopped = True

    def passivate(self, stop_message: object | None = None) -> None:
        self._host.stopped = True

    def start_timer(self, key: str, seconds: float, call: Any, /, *args: Any, **kwargs: Any) -> None:
        name, data = timer_call(self._host.entity_type, call, args, kwargs)
        self.timers[key] = (self._host.now + timedelta(seconds=seconds), name, data)

    def cancel_timer(self, key: str) -> bool:
        return self.timers.pop(key, None) is not None


class LocalHost:
    """One entity, with a list as its journal. Give it the history it starts from."""

    def __init__(
        self,
        entity: type[Any] | EntityType,
        entity_id: str = "1",
        *,
        events: Iterable[object] = (),
        state: bytes | None = None,
        context: EntityContext | None = None,
        now: datetime | None = None,
        committed: Callable[[LocalHost], None] = lambda host: None,
        config: NodeConfig | None = None,
    ) -> None:
        """`now`: its clock, which only a test moves. `committed` is called after each commit that
        has staged messages. `config`: that of a node, for its limits of sizes.
        """
        self.entity_type = entity if isinstance(entity, EntityType) else entity._sharding_type
        self.entity_id = entity_id
        #: Journal records of all committed events: name, version, JSON.
        self.journal: list[tuple[str, int, bytes]] = [
            self.entity_type.event_codec.encode(event) for event in events
        ]
        #: The state that was stored last: the given one, or a later one of a durable-state entity.
        self.stored: bytes | None = state
        #: The events of the last command.
        self.events: list[object] = []
        #: The durable messages that the last command sent, and the timers that it cancelled.
        self.messages: list[StagedMessage] = []
        self.cancelled: list[str] = []
        #: Its durable timers, by key.
        self.timers: dict[str, Timer] = {}
        #: Those of them that do not fire again: an operator would look at them.
        self.parked: dict[str, Timer] = {}
        self.now = datetime.now(UTC) if now is None else now
        self._committed = committed
        self._started = False
        #: Its last call has asked for its end. It begins anew with the next one.
        self.stopped = False
        self._given_context = context
        self._limits = config or NodeConfig()
        self._staging = Staging(self._step)
        self._commits = 0
        self.context = LocalContext(self)
        self.entity = self._recovered(self.context)
        if self.stored is None and self.entity_type.kind == "durable_state":
            self.stored = self.entity_type.dump_state(self.entity)

    async def run(self, command: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a handler as a ref does, arguments and reply encoded both ways."""
        handler = self.entity_type.handler(command)
        return handler.decode_result(await self.handle(command, handler.encode(args, kwargs)))

    async def handle(self, command: str, raw: bytes) -> bytes:
        """Return the encoded reply to a call with encoded arguments."""
        handler = self.entity_type.handler(command)
        most = self._limits.links.max_message_bytes
        if len(raw) > most:
            raise arguments_too_large(self.entity_type.name, command, len(raw), most)
        args = handler.decode(raw)
        with_staging = self._staging if not handler.is_query else None
        reply: bytes = await self._guarded(command, with_staging, handler, args)
        return reply

    async def receive(self, message: object) -> Any:
        """Give the entity a plain message, after a round trip through its codec."""
        return await self._guarded(
            type(message).__qualname__, self._staging, None, (decode_message(*encode_message(message)),)
        )

    def state(self) -> bytes:
        """Return the present state as JSON."""
        return self.entity_type.dump_state(self.entity)

    async def _guarded(
        self, name: str, staging: Staging | None, handler: Handler | None, args: tuple[Any, ...]
    ) -> Any:
        self.events, self.messages, self.cancelled, self._commits = [], [], [], 0
        try:
            if self.stopped:
                self._begin_anew()
            await self._start()
            self.entity._sharding_staging = staging
            result = await self._called(handler, args)
            if self._staging.broken is not None:
                raise self._staging.broken
            reply = result if handler is None else handler.encode_result(result)
            if handler is not None:
                self._refuse_reply(name, reply, staging)
            if staging is not None:
                await self._commit(staging)
            return reply
        except Exception as error:
            self._staging.clear()
            timers = self.context.timers if isinstance(error, Rejected) else {}
            self._begin_anew()
            self.context.timers.update(timers)
            raise self._typed(name, error) from error
        finally:
            self.entity._sharding_staging = None

    def _begin_anew(self) -> None:
        self.context = LocalContext(self)
        self.entity = self._recovered(self.context)
        self._started = self.stopped = False

    async def _start(self) -> None:
        if self._started:
            return
        self._started = True
        for method in self.entity_type.on_start:
            result = method(self.entity)
            if inspect.isawaitable(result):
                await result

    async def fire(self, key: str) -> None:
        """Let a timer call its command. It is over then, or repeats; after an error it stays.

        As on a node, `Rejected` ends this firing of one that repeats, and parks any other.
        """
        timer = self.timers[key]
        try:
            await self.handle(timer.message.command, timer.message.args)
        except (Rejected, PartiallyApplied) as error:
            if isinstance(error, Rejected) and timer.message.every is not None:
                self._fired(key, timer)
            else:
                self.parked[key] = timer
            raise
        self._fired(key, timer)

    def _fired(self, key: str, timer: Timer) -> None:
        if self.timers.get(key) is timer:
            del self.timers[key]
            if timer.message.every is not None:
                again = recurrence.fire(recurrence.decode(timer.message.every), timer.due, self.now).again
                self.timers[key] = timer._replace(due=again)

    async def advance(self, seconds: float | timedelta) -> int:
        """Move the clock, and fire the timers that come due, each at its time. Return their
        number.

        As in a cluster, time goes on behind a durable timer that fails: its error is raised at the
        end. One whose command was not refused is tried again by the next call.
        """
        until = self.now + (seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds))
        self.events, self.messages, self.cancelled, fired = [], [], [], 0
        failed: dict[str, Timer] = {}
        first: ShardingError | None = None
        while True:
            key, plain = self._next_timer(until, failed), self._next_plain(until)
            if plain is not None and (key is None or self.context.timers[plain][0] < self.timers[key].due):
                due, command, args = self.context.timers.pop(plain)
                self.now = max(self.now, due)
                await self._fire_plain(command, args)
            elif key is not None:
                timer = self.timers[key]
                self.now = max(self.now, timer.due)
                try:
                    await self.fire(key)
                except ShardingError as error:
                    failed[key], first = timer, first or error
            else:
                break
            fired += 1
        self.now = until
        if first is not None:
            raise first
        return fired

    def _next_timer(self, until: datetime, failed: Mapping[str, Timer]) -> str | None:
        """Return the key of the timer that comes due first, if it does by then."""
        waiting = [
            key
            for key, timer in self.timers.items()
            if timer.due <= until and failed.get(key) is not timer and self.parked.get(key) is not timer
        ]
        return min(waiting, key=lambda each: self.timers[each].due, default=None)

    def _next_plain(self, until: datetime) -> str | None:
        timers = {} if self.stopped else self.context.timers
        key = min(timers, key=lambda each: timers[each][0], default=None)
        return key if key is not None and timers[key][0] <= until else None

    async def _fire_plain(self, command: str, args: bytes) -> None:
        """Call what a timer in memory calls. As on a node, an error reaches no caller."""
        with contextlib.suppress(ShardingError):
            if command == MESSAGE:
                await self.receive(decode_message(*msgspec.msgpack.decode(args)))
            else:
                await self.handle(command, args)

    def put(self, message: StagedMessage) -> None:
        """Take a timer."""
        if message.key is None:
            raise ValueError("a message without a key is no timer")
        if message.every is not None:
            due = recurrence.first(recurrence.decode(message.every), self.now)
        else:
            due = self.now + timedelta(seconds=message.delay) if message.at is None else message.at
        self.timers[message.key] = Timer(bound(message), due, message)

    async def _called(self, handler: Handler | None, args: tuple[Any, ...]) -> Any:
        if handler is None:
            result = self.entity.receive(*args)
            return await result if inspect.isawaitable(result) else result
        if handler.thread:
            return await self.in_thread(lambda: handler.function(self.entity, *args))
        result = handler.function(self.entity, *args)
        return await result if handler.is_async else result

    async def _step(self, staging: Staging) -> None:
        """Commit in the middle of a handler. If that fails its command fails, whatever it does."""
        if staging.broken is not None:
            raise staging.broken
        try:
            await self._commit(staging)
        except BaseException as error:
            staging.broken = error
            raise

    def _refuse_reply(self, name: str, reply: bytes, staging: Staging | None) -> None:
        """Raise an error for a reply that no node would keep beside the events, or send."""
        limits, size = self._limits, len(reply)
        most = limits.links.max_message_bytes
        kept = min(limits.max_reply_bytes, most - REPLY_ROOM_BYTES)
        stores = staging is not None and (
            bool(self._commits or staging.records or staging.in_transaction)
            or bool(staging.messages or staging.cancelled)
            or (self._is_durable() and self.state() != self.stored)
        )
        if stores and size > kept:
            raise reply_not_kept(self.entity_type.name, name, size, kept)
        if size > most:
            raise reply_not_sent(size, most)

    async def _commit(self, staging: Staging) -> None:
        functions, records = staging.in_transaction, staging.records
        state = self.entity_type.dump_state(self.entity) if self._is_durable() else None
        most = self._limits.max_state_bytes
        if state is not None and len(state) > most:
            raise state_too_large(self.entity_type.name, self.entity_id, len(state), most)
        for each in staging.messages:
            limit = args_limit(self._limits.links.max_message_bytes)
            refuse_too_large(each.target_type, each.command, each.args, limit)
        if functions:
            await self.in_thread(lambda: self.together([*functions, lambda: self._append(records)]))
        else:
            self._append(records)
        moves = bool(staging.messages or staging.cancelled)
        if records or functions or moves or (state is not None and state != self.stored):
            self._commits += 1
        self.stored = self.stored if state is None else state
        for key in staging.cancelled:
            self.timers.pop(key, None)
        for message in staging.messages:
            if message.key is not None:
                self.put(message)
            else:
                self.messages.append(message)
        self.cancelled += staging.cancelled
        afterwards = staging.after_commit
        staging.clear()
        if moves:
            self._committed(self)
        for function in afterwards:
            await self._run_after_commit(function)

    async def _run_after_commit(self, function: Callable[[], object]) -> None:
        try:
            if inspect.iscoroutinefunction(function):
                await function()
            else:
                await self.in_thread(function)
        except Exception:
            logger.exception("a function of after_commit() raised; the command's events stay")

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run a function of the user's that may block."""
        return await asyncio.to_thread(function)

    def together(self, functions: Sequence[Callable[[], object]]) -> None:
        """Run functions in one transaction, where there is a database."""
        for function in functions:
            function()

    def _append(self, records: list[Record]) -> None:
        for name, version, data, event in records:
            self.journal.append((name, version, data))
            self.events.append(event)

    def _is_durable(self) -> bool:
        return self.entity_type.kind == "durable_state"

    def _recovered(self, context: LocalContext | None = None) -> Any:
        entity = self.entity_type.new(self.entity_id, self._given_context or context or LocalContext(self))
        if self.stored is not None:
            self.entity_type.load_state(entity, self.stored)
        rows = ((number, *record) for number, record in enumerate(self.journal, 1))
        self.entity_type.replay(entity, rows)
        return entity

    def _typed(self, name: str, error: Exception) -> ShardingError:
        if isinstance(error, NotSerializable) and error.code in SIZES and not self._commits:
            return error
        failure = self.entity_type.failed(self.entity_id, name, error)
        if not self._commits:
            return failure
        return PartiallyApplied(
            f"{failure.message} (what it had awaited before is stored)", params=failure.params
        )


class LocalGateway:
    """Answers all refs of the process from `LocalHost` objects: ``with use_gateway(LocalGateway()):
    ...``.
    """

    def __init__(self) -> None:
        self._hosts: dict[tuple[str, str], LocalHost] = {}
        self._sent: deque[tuple[LocalHost, StagedMessage]] = deque()
        self._delivers = False
        #: Messages that failed and whose sender names no handler for that, with the error.
        self.parked: list[tuple[StagedMessage, ShardingError]] = []

    def host(self, type_name: str, entity_id: str) -> LocalHost:
        """Return the host of one entity, made at first use."""
        key = (type_name, entity_id)
        found = self._hosts.get(key)
        if found is None:
            found = self._hosts[key] = LocalHost(registry.get(type_name), entity_id, committed=self._take)
        return found

    def _take(self, host: LocalHost) -> None:
        self._sent += [(host, each) for each in host.messages]
        host.messages = []

    async def deliver(self) -> None:
        """Deliver all durable messages, and those that follow from them, in their order."""
        if self._delivers:
            return  # by a handler's own ask: the outer call goes on with the rest
        self._delivers = True
        try:
            while self._sent:
                await self._deliver(*self._sent.popleft())
        finally:
            self._delivers = False

    async def _deliver(self, owner: LocalHost, message: StagedMessage) -> None:
        target = self.host(message.target_type, message.target)
        try:
            reply = await target.handle(message.command, message.args)
        except ShardingError as error:
            self._failed(owner, message, error)
            return
        if message.reply_to is not None:
            result = target.entity_type.handler(message.command).decode_result(reply)
            self._answer(owner, message.reply_to, result)

    def _failed(self, owner: LocalHost, message: StagedMessage, error: ShardingError) -> None:
        if message.on_failure is None:
            self.parked.append((message, error))
            return
        names = registry.get(message.target_type).handler(message.command).parameters
        failure = failure_of(message.target_type, message.target, message.command, names, message.args, error)
        self._answer(owner, message.on_failure, failure)

    def _answer(self, owner: LocalHost, command: str, value: object) -> None:
        args = owner.entity_type.handler(command).encode_answer(value)
        self._sent.append((owner, StagedMessage(owner.entity_type.name, owner.entity_id, command, args)))

    async def advance(self, seconds: float | timedelta) -> None:
        """Move the clocks of all entities, and fire their timers. As in a cluster, an error of one
        reaches no caller.
        """
        for host in list(self._hosts.values()):
            with contextlib.suppress(ShardingError):
                await host.advance(seconds)
        await self.deliver()

    async def store(self, message: StagedMessage) -> None:
        """As in `gateway.Gateway`."""
        host = self.host(message.target_type, message.target)
        if message.key is None:
            self._sent.append((host, message))
            await self.deliver()
        else:
            host.put(message)

    def store_sync(self, message: StagedMessage) -> None:
        """As in `gateway.Gateway`."""
        asyncio.run(self.store(message))

    async def ask(self, call: Call) -> bytes:
        """As in `gateway.Gateway`."""
        if call.command == EXISTS:
            return b"1" if (call.type, call.entity) in self._hosts else b""
        if call.command == IDS:
            return self._page_of_ids(call)
        reply = await self.host(call.type, call.entity).handle(call.command, call.args)
        await self.deliver()
        return reply

    def ask_sync(self, call: Call) -> bytes:
        """As in `gateway.Gateway`."""
        return asyncio.run(self.ask(call))

    def _page_of_ids(self, call: Call) -> bytes:
        wanted = decode_wanted(call.args)
        ids = sorted(
            (host.entity_id for (name, _), host in self._hosts.items() if name == call.type), key=str.encode
        )
        return encode_page(page_of([each for each in ids if wanted.takes(each)][: wanted.most], wanted.most))

    def ask_all(self, calls: Sequence[Call]) -> list[Awaitable[bytes]]:
        """As in `gateway.Gateway`; one after the other."""
        former: asyncio.Task[bytes] | None = None
        made: list[Awaitable[bytes]] = []
        for call in calls:
            former = asyncio.ensure_future(self._ask_after(former, call))
            made.append(former)
        return made

    async def _ask_after(self, former: asyncio.Task[bytes] | None, call: Call) -> bytes:
        if former is not None:
            await asyncio.wait((former,))
        return await self.ask(call)

    def ask_all_sync(self, calls: Sequence[Call]) -> list[bytes | BaseException]:
        """As in `gateway.Gateway`."""

        async def ask() -> list[bytes | BaseException]:
            return await asyncio.gather(*self.ask_all(calls), return_exceptions=True)

        return asyncio.run(ask())

    def tell(self, call: Call) -> None:
        """Run the command before returning, on a thread of its own; as in a cluster, an error
        reaches no caller.
        """
        with ThreadPoolExecutor(1) as thread, contextlib.suppress(ShardingError):
            thread.submit(self.ask_sync, call).result()


def bound(message: StagedMessage) -> Bound:
    """Return a staged message as a test writes it: ``Account.ref(to).deposit.bind(5)``."""
    entity_type = registry.get(message.target_type)
    return Bound(entity_type.handler(message.command), entity_type.ref_class(message.target), message.args)
