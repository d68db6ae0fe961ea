"""The bases of entities: `EventSourced`, `DurableState` and `Entity`.

- `EventSourced`: its state is the fold of its events. A command stages events with
  ``persist(*events)``.
- `DurableState`: its last state is stored. When a command returns, the annotated attributes are
  stored if they differ from the stored state; when it raises, they are put back. There is no save
  to forget; ``await self.persist()`` stores at once, before an outside effect.
- `Entity`: in memory only; also the base of all, with ``receive`` for plain messages.
- `Singleton`: one instance in the cluster. `Worker`: one of a set of numbered ones.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, Self, TypeVar, overload
from uuid import UUID

from sharding_app.entities import durable_calls
from sharding_app.entities.declare import declare
from sharding_app.entities.durable_calls import Sent
from sharding_app.entities.entity_type import EntityType, Kind
from sharding_app.entities.event_codec import Happening
from sharding_app.entities.handlers import Command
from sharding_app.entities.happened import Happened
from sharding_app.entities.identifiers import declared_name
from sharding_app.entities.listing import Refs
from sharding_app.entities.many import AT_A_TIME, Ids, Many
from sharding_app.entities.registry import registry
from sharding_app.entities.remote import Bound, Remote
from sharding_app.entities.schedules import Daily
from sharding_app.entities.settings import ShardingSettings
from sharding_app.entities.staging import Staging
from sharding_app.errors import DeclarationError, InvalidCall, WrongContext
from sharding_app.protocol.allocation.workers import WORKERS
from sharding_app.protocol.delivery.recurrence import Missed

if TYPE_CHECKING:
    from sharding_app.entities.context import EntityContext

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")
NO_STAGING = (
    "persist() can only be called while a command handler runs: not in a query, an applier or __init__,"
    " and not after the handler has returned"
)


class _Sync:
    """``ref.sync`` to a type checker: the instance, whose handlers give plain results."""

    def __get__(self, instance: object, owner: type[T]) -> T:
        raise InvalidCall(
            f"{owner.__qualname__}.sync needs an id: call {owner.__qualname__}.ref(id).sync.command(...)"
        )


class _MakeRef(Protocol[T_co]):
    """``Cart.ref`` to a type checker."""

    def __call__(
        self,
        entity_id: str | int | UUID,
        *,
        timeout: float | None = None,
        command_id: str | None = None,
        on_commit: bool = True,
    ) -> type[T_co]: ...


class _Ref:
    """``Cart.ref(id)`` makes a ref, and ``self.ref`` is the ref of the entity itself."""

    @overload
    def __get__(self, instance: None, owner: type[T]) -> _MakeRef[T]: ...
    @overload
    def __get__(self, instance: T, owner: type[T]) -> type[T]: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        return owner._sharding_ref if instance is None else durable_calls.own_ref(instance)


class _Events:
    """``ref.events`` and ``ref.sync.events`` to a type checker."""

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> _FollowEvents: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> _FollowEventsSync: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        name = owner.__qualname__
        raise InvalidCall(f"{name}.events needs an id: call {name}.ref(id).events(after=0)")


class _FollowEvents(Protocol):
    def __call__(self, after: int = 0) -> AsyncIterator[Happened[Any]]: ...


class _FollowEventsSync(Protocol):
    def __call__(self, after: int = 0, *, timeout: float | None = None) -> Iterator[Happened[Any]]: ...


class Entity:
    """The base of entities: one object per id, in the memory of the node that hosts it."""

    __slots__ = ("_sharding_staging", "context", "entity_id")

    #: The id, always text.
    entity_id: str
    #: Its surroundings: stop, passivate, sender, timers.
    context: EntityContext
    settings: ClassVar[ShardingSettings]
    #: True: the entity's id is a person's, and `erase_subject` erases it with the person's data.
    erased_with_subject: ClassVar[bool] = False
    #: ``Cart.ref(id)``: the address of an entity; in one of them ``self.ref``: its own.
    ref: ClassVar[_Ref] = _Ref()
    sync: ClassVar[_Sync] = _Sync()

    _sharding_staging: Staging | None
    _sharding_type: ClassVar[EntityType | None] = None
    _sharding_happenings: ClassVar[dict[type, Happening]] = {}
    _sharding_kind: ClassVar[Kind] = "memory"

    if TYPE_CHECKING:
        exists: ClassVar[Command[[], bool]]
        events: ClassVar[_Events]

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        super().__init_subclass__()
        if cls.__module__ == __name__:
            return
        if len({base._sharding_kind for base in cls.__mro__ if base in _KINDS} - {"memory"}) > 1:
            raise DeclarationError(f"{cls.__qualname__} must be EventSourced or DurableState, not both")
        made = declare(cls, _FRAMEWORK, cls._sharding_kind, name, singleton=issubclass(cls, Singleton))
        if vars(cls).get("abstract", False):
            cls._sharding_type = None
            return
        if issubclass(cls, Worker):
            _check_worker(cls)
        cls._sharding_type = made
        cls._sharding_happenings = made.event_codec.happenings
        if not issubclass(cls, Worker):  # those are hosted once they are started, under the name of their set
            registry.add(made)

    @classmethod
    def _sharding_ref(
        cls,
        entity_id: str | int | UUID,
        *,
        timeout: float | None = None,
        command_id: str | None = None,
        on_commit: bool = True,
    ) -> type[Self]:
        """Return a ref of the entity with that id; does no I/O.

        `timeout`: seconds to wait for a reply. `command_id`: makes retries of one command safe.
        `on_commit`: a ``tell`` inside ``atomic()`` is sent when it commits.
        """
        return _made(cls).ref_class(entity_id, timeout, command_id, on_commit)  # type: ignore[return-value]

    @classmethod
    def refs(cls, *, prefix: str = "", stored: bool = True) -> Refs[Self]:
        """Return the refs of all entities that have stored something: ``async for ref in
        Cart.refs()``.

        They come in the order of their ids (by their UTF-8). `prefix`: only ids that begin so.
        ``stored=False``: the entities that are in memory now, in no order.
        """
        return Refs(_made(cls), prefix, stored=stored)

    @classmethod
    def ask_many(
        cls,
        ids: Ids,
        /,
        *,
        timeout: float | None = None,
        command_id: str | None = None,
        at_a_time: int = AT_A_TIME,
    ) -> Many[Self]:
        """Ask many entities at once: ``answers = await Cart.ask_many(ids).total()``.

        `ids` are ids or refs, in anything that can be iterated. `timeout` and `command_id` are
        those of a ref. `at_a_time`: the most ids that are under way.
        """
        return Many(_made(cls), ids, timeout, command_id, at_a_time)

    def send(self, call: Remote[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Sent[R]:
        """Stage a durable message: ``self.send(Account.ref(to).deposit, amount=5)``.

        It is stored with the events of this command, or not at all, and takes effect exactly once.
        """
        return durable_calls.send(self, call, args, kwargs)

    @overload
    def schedule(self, call: Callable[[], object] | Bound, *, key: str, at: datetime) -> None: ...
    @overload
    def schedule(self, call: Callable[[], object] | Bound, *, key: str, after: float | timedelta) -> None: ...
    @overload
    def schedule(
        self,
        call: Callable[[], object] | Bound,
        *,
        key: str,
        every: timedelta | Daily,
        missed: Missed = "once",
    ) -> None: ...
    def schedule(
        self,
        call: Callable[[], object] | Bound,
        *,
        key: str,
        at: datetime | None = None,
        after: float | timedelta | None = None,
        every: timedelta | Daily | None = None,
        missed: Missed = "once",
    ) -> None:
        """Stage a durable timer: ``self.schedule(self.ref.close, key="closing", at=...)``.

        It is stored with the events of this command, and calls a command of this entity at its
        time. There is one timer for a key: a later one takes its place.
        """
        durable_calls.schedule(self, call, key, at, after, every, missed)

    def cancel(self, key: str) -> None:
        """Stage the end of the timer with that key, if there is one."""
        durable_calls.cancel(self, key)

    def after_commit(self, function: Callable[[], object]) -> None:
        """Run a function once this command's events are stored; its failure changes nothing.

        A plain function runs in a thread, an async one on the event loop. It may be lost with its
        node: use `send` for what must happen.
        """
        durable_calls.after_commit(self, function)

    @classmethod
    def may_watch(cls, user: Any, entity_id: str, view: str) -> bool:
        """Tell whether a user may watch that view of that entity in a browser.

        Only a user who is logged in is asked about, in a thread, again and again while the page is
        open. For a type without one ``SHARDING["MAY_WATCH"]`` decides; without that, no user may.
        """
        return False

    may_watch.__func__.__sharding_default__ = True  # type: ignore[attr-defined]

    def receive(self, message: object) -> object:
        """Handle a message from a region; return the reply, or None for no reply. May be async."""
        raise InvalidCall(
            f"{type(self).__qualname__} does not handle {type(message).__qualname__}: define receive()"
        )

    receive.__sharding_default__ = True  # type: ignore[attr-defined]


class EventSourced(Entity):
    """An entity whose state is computed from its events in the journal."""

    __slots__ = ()
    _sharding_kind: ClassVar[Kind] = "event_sourced"
    snapshot_version: ClassVar[int] = 1
    """Raise it where older snapshots lack something or mean something else: they are skipped then,
    and the events are read instead.
    """

    def persist(self, *events: object, in_transaction: Callable[[], object] | None = None) -> Awaitable[None]:
        """Apply `events` to the state and stage them; they are stored when the handler returns.

        Awaiting the result is optional: it stores the staged events now. `in_transaction` runs in
        a thread, in the same transaction. An event without an applier, or one that cannot be stored
        exactly, is refused.
        """
        staging = self._sharding_staging
        if staging is None:
            raise WrongContext(NO_STAGING)
        known = self._sharding_happenings
        # All are encoded before the first is applied; one event, the usual case, goes without the
        # lists.
        if len(events) == 1:
            event = events[0]
            name, version, encode, apply = known.get(type(event)) or _happening(self, event)
            record = (name, version, encode(event), event)
            self._sharding_staging = None  # an applier that persists is refused
            try:
                apply(self, event)
            except BaseException as error:
                staging.broken = error
                raise
            finally:
                self._sharding_staging = staging
            staging.records.append(record)
        elif events:
            found = [known.get(type(event)) or _happening(self, event) for event in events]
            pairs = list(zip(found, events, strict=True))
            records = [(one.name, one.version, one.encode(event), event) for one, event in pairs]
            self._sharding_staging = None
            try:
                for one, event in pairs:
                    one.apply(self, event)
            except BaseException as error:
                staging.broken = error
                raise
            finally:
                self._sharding_staging = staging
            staging.records += records
        if in_transaction is not None:
            staging.in_transaction.append(in_transaction)
        return staging


class DurableState(Entity):
    """An entity whose last state is stored after each command that changes it."""

    __slots__ = ()
    _sharding_kind: ClassVar[Kind] = "durable_state"

    def persist(self, *, in_transaction: Callable[[], object] | None = None) -> Awaitable[None]:
        """Store the state now; await it. `in_transaction` runs in a thread, in that transaction."""
        staging = self._sharding_staging
        if staging is None:
            raise WrongContext(NO_STAGING)
        if in_transaction is not None:
            staging.in_transaction.append(in_transaction)
        return staging


class Singleton(Entity):
    """A base for an entity of which there is one: ``class Digest(Singleton, EventSourced)``.

    It runs on the longest-standing node of its role from the cluster's start on, and is reached as
    ``Digest.the()``. Commands with ``@every`` are called by themselves.
    """

    __slots__ = ()

    @classmethod
    def the(
        cls, *, timeout: float | None = None, command_id: str | None = None, on_commit: bool = True
    ) -> type[Self]:
        """Return the ref of the one instance; the options are those of ``ref``."""
        made = cls._sharding_type
        if made is None or made.singleton_id is None:
            raise InvalidCall(f"{cls.__qualname__} is abstract: it has no refs")
        return cls._sharding_ref(
            made.singleton_id, timeout=timeout, command_id=command_id, on_commit=on_commit
        )


class Worker(Entity):
    """A base for numbered workers, which `ShardedDaemonProcess.start` spreads over the nodes.

    Each number runs in one place, from the cluster's start on, and again after every failure. A new
    instance is made for each start.
    """

    __slots__ = ()

    async def run(self) -> None:
        """Work until cancelled: the worker has to stop, or to move.

        If it returns or raises, it is started again after a back-off.
        """
        raise NotImplementedError(f"{type(self).__qualname__} needs `async def run(self)`")

    @classmethod
    def _sharding_ref(
        cls,
        entity_id: str | int | UUID,
        *,
        timeout: float | None = None,
        command_id: str | None = None,
        on_commit: bool = True,
    ) -> type[Self]:
        """Raise an error: the class may be that of several sets."""
        raise InvalidCall(
            f"{cls.__qualname__} is a Worker: its refs come from its set, as in"
            " ShardedDaemonProcess.start(...).ref(number)"
        )

    @property
    def number(self) -> int:
        """The number of this worker, from 0 on."""
        return int(self.entity_id)

    @property
    def workers(self) -> int:
        """The number of workers in the set: they are numbered below it."""
        return self.context.workers


def _check_worker(cls: type[Entity]) -> None:
    what = cls.__qualname__
    if cls._sharding_kind != "memory":
        raise DeclarationError(
            f"{what}: a Worker is in memory only. Let it call an entity that stores what has to outlast it"
        )
    if not inspect.iscoroutinefunction(inspect.getattr_static(cls, "run")):
        raise DeclarationError(
            f"{what}.run must be `async def`: a thread cannot be stopped. Call blocking code inside it by"
            " `await sync_to_async(function)(...)`"
        )


def _made(cls: type[Entity]) -> EntityType:
    made = cls._sharding_type
    if made is None:
        raise InvalidCall(f"{cls.__qualname__} is abstract: it has no refs")
    return made


def hosted_as(cls: type[Entity], name: str, settings: ShardingSettings | None = None) -> EntityType:
    """Register `cls` under `name`, as ``ClusterSharding.start`` does; its refs lead there from now
    on.

    A name that was derived from the class is given up. A class that already has a given name gets
    one more type, and its refs stay with the first. `settings` override those of the class.
    """
    declared_name(name, "an entity type")
    made = cls._sharding_type
    if made is None:
        raise InvalidCall(f"{cls.__qualname__} is abstract: start a subclass of it")
    if issubclass(cls, Singleton):
        raise InvalidCall(f"{cls.__qualname__} is a Singleton: it runs without being started")
    if issubclass(cls, Worker) and not name.startswith(WORKERS):
        raise InvalidCall(f"{cls.__qualname__} is a Worker: start it with ShardedDaemonProcess.start")
    wanted = made.settings if settings is None else settings.over(made.settings)
    if made.is_named and made.name == name and wanted == made.settings:
        return made
    new = made.renamed(name, wanted)
    if not issubclass(cls, Worker) and (not made.is_named or made.name == name):
        registry.discard(made)
        cls._sharding_type = new
        cls._sharding_happenings = new.event_codec.happenings
    registry.add(new)
    return new


def _happening(entity: Entity, event: object) -> Happening:
    made = entity._sharding_type
    if made is None:
        raise InvalidCall(f"{type(entity).__qualname__} is abstract")
    return made.happening(event)


_KINDS: tuple[type[Entity], ...] = (EventSourced, DurableState, Entity)
_FRAMEWORK: tuple[type, ...] = (Singleton, Worker, *_KINDS)
