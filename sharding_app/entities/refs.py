"""`Ref`: the address of one entity. Creating one only checks the id.

Each entity type gets two small classes of its own, one for awaiting callers and one for ``.sync``,
whose attributes are the type's handlers: looking one up costs no dictionary and no ``__getattr__``.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, cast
from uuid import UUID

from sharding_app.entities import following, gateway, identifiers
from sharding_app.entities.registry import registry
from sharding_app.entities.remote import Remote, SyncRemote, refuse_on_loop
from sharding_app.errors import InvalidCall
from sharding_app.protocol.builtin_commands import EXISTS
from sharding_app.protocol.call import Call

if TYPE_CHECKING:
    from sharding_app.entities.entity_type import EntityType
    from sharding_app.entities.handler import Handler
    from sharding_app.entities.happened import Happened

T = TypeVar("T")


def timeout_of(entity_type: EntityType, asked: object) -> float | None:
    """Return how many seconds a call waits for its reply: as asked, else by the type's settings.
    None: by those of the process. Raises `InvalidCall`.
    """
    if asked is None:
        return entity_type.settings.ask_timeout_seconds
    is_number = isinstance(asked, (int, float)) and not isinstance(asked, bool)
    if not is_number or not 0 < cast(float, asked) < float("inf"):
        raise InvalidCall(f"timeout must be a number of seconds greater than 0, not {asked!r}")
    return cast(float, asked)


class BoundRef:
    """The common part of refs: the address and its options."""

    __slots__ = ("_ref_command_id", "_ref_id", "_ref_on_commit", "_ref_timeout")

    #: A template that names a ref means the ref, not what its call returns.
    do_not_call_in_templates: ClassVar[bool] = True
    entity_type: ClassVar[EntityType]
    #: The name of the entity's type.
    type_name: ClassVar[str]

    def __init__(
        self,
        entity_id: str | int | UUID,
        timeout: Any = None,
        command_id: Any = None,
        on_commit: bool = True,
    ) -> None:
        self._ref_id = identifiers.entity_id(entity_id)
        if command_id is not None:
            command_id = identifiers.command_id(command_id)
        self._ref_timeout = timeout_of(self.entity_type, timeout)
        self._ref_command_id = command_id
        self._ref_on_commit = on_commit

    @property
    def entity_id(self) -> str:
        """The entity's id."""
        return self._ref_id

    def _ref_ask(self, command: str, args: bytes) -> Call:
        command_id = self._ref_command_id or ""
        return Call(self.type_name, self._ref_id, command, args, self._ref_timeout, command_id)

    def _ref_tell(self, command: str, args: bytes) -> Call:
        command_id = self._ref_command_id or ""
        return Call(self.type_name, self._ref_id, command, args, None, command_id, tell=True)

    def _ref_exists(self) -> Call:
        return Call(self.type_name, self._ref_id, EXISTS, b"", self._ref_timeout)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundRef):
            return NotImplemented
        return self._ref_id == other._ref_id and self.type_name == other.type_name

    def __hash__(self) -> int:
        return hash((self._ref_id, self.type_name))

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} cannot be pickled: pass its entity_id and create the ref again")

    def __repr__(self) -> str:
        return f"{self.entity_type.cls.__qualname__}.ref({self._ref_id!r})"

    def __getattr__(self, name: str) -> Any:
        cls = self.entity_type.cls.__qualname__
        if name.startswith("__"):
            raise AttributeError(f"a ref of {cls} has no {name!r}")
        if name in vars(self.entity_type.cls) or name in self.entity_type.state_names:
            raise AttributeError(f"{cls}.{name} lives inside the entity: declare a @query that returns it")
        close = difflib.get_close_matches(name, self.entity_type.commands, n=1)
        hint = f": did you mean {close[0]!r}?" if close else ""
        raise AttributeError(f"{cls} has no command or query {name!r}{hint}")


class EntityRef(BoundRef, Generic[T]):
    """The address of an entity, from ``Cart.ref(id)``; annotate it as ``Ref[Cart]``."""

    __slots__ = ()

    sync_class: ClassVar[type[SyncRef]]

    @property
    def sync(self) -> SyncRef:
        """The same entity, for code without an event loop."""
        return self.sync_class(self._ref_id, self._ref_timeout, self._ref_command_id, self._ref_on_commit)

    def __call__(
        self,
        entity_id: str | int | UUID,
        *,
        timeout: float | None = None,
        command_id: str | None = None,
        on_commit: bool = True,
    ) -> EntityRef[T]:
        """Return the ref of another entity of the type: in an entity ``self.ref(other)`` is one."""
        return type(self)(entity_id, timeout, command_id, on_commit)

    async def exists(self) -> bool:
        """Tell whether the entity has ever stored anything, or is in memory now."""
        return await gateway.current().ask(self._ref_exists()) == b"1"

    def events(self, after: int = 0) -> AsyncIterator[Happened[Any]]:
        """Follow the entity: its events after that number, and then each new one, for ever.

        Each comes once, in order, without a gap, through moves and failovers of its home.
        """
        following.check_after(self, after)
        return following.events(self, after)

    @classmethod
    def __sharding_encode__(cls, ref: EntityRef[Any]) -> list[str]:
        return [ref.type_name, ref._ref_id]

    @classmethod
    def __sharding_decode__(cls, wanted: Any, value: Any) -> Any:
        if not (isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)):
            raise ValueError("expected a ref as [type, id]")
        entity_type = registry.get(value[0])
        for entity in getattr(wanted, "__args__", ()):
            if isinstance(entity, type) and not issubclass(entity_type.cls, entity):
                raise ValueError(f"expected a ref of {entity.__qualname__}, not of {value[0]!r}")
        return entity_type.ref_class(value[1])


class SyncRef(BoundRef):
    """``ref.sync``: calls block and return the reply."""

    __slots__ = ()

    def exists(self) -> bool:
        """Tell whether the entity has ever stored anything, or is in memory now."""
        refuse_on_loop(self, "exists")
        return gateway.current().ask_sync(self._ref_exists()) == b"1"

    def events(self, after: int = 0, *, timeout: float | None = None) -> Iterator[Happened[Any]]:
        """Follow the entity, as `EntityRef.events` does, until no event comes for `timeout`
        seconds.
        """
        refuse_on_loop(self, "events")
        following.check_after(self, after)
        return following.events_sync(self, after, timeout)

    def __repr__(self) -> str:
        return f"{super().__repr__()}.sync"


def _attribute(handler: Handler, remote: Callable[..., object]) -> property:
    """Make a handler an attribute of a ref class. A partial, since each call gets it: it costs no
    Python frame.
    """
    return property(functools.partial(remote, handler))


def ref_class(entity_type: EntityType) -> type[EntityRef[Any]]:
    """Make the ref class of a type, with its handlers as attributes; refused while its name means
    another type.
    """
    registry.check_own(entity_type)
    common: dict[str, Any] = {"__slots__": (), "entity_type": entity_type, "type_name": entity_type.name}
    name = entity_type.cls.__name__
    asking = {key: _attribute(value, Remote) for key, value in entity_type.commands.items()}
    blocking = {key: _attribute(value, SyncRemote) for key, value in entity_type.commands.items()}
    if entity_type.singleton_id is not None:
        common["__init__"] = _init_of_singleton(entity_type)
    sync = type(f"{name}SyncRef", (SyncRef,), {**common, **blocking})
    return type(f"{name}Ref", (EntityRef,), {**common, **asking, "sync_class": sync})


def _init_of_singleton(entity_type: EntityType) -> Callable[..., None]:
    """Make the constructor of a singleton's refs, which know one id."""
    only, cls = entity_type.singleton_id, entity_type.cls.__qualname__

    def init(self: BoundRef, entity_id: str | int | UUID, *options: Any) -> None:
        BoundRef.__init__(self, entity_id, *options)
        if self._ref_id != only:
            way = f"{cls}.the()" if hasattr(entity_type.cls, "the") else f"{cls}.ref({only!r})"
            raise InvalidCall(
                f"{cls} is a singleton, and {self._ref_id!r} would be another one: reach it as {way}"
            )

    return init


if TYPE_CHECKING:
    #: A ref, for annotations: ``Cart.ref(id)`` returns a ``Ref[Cart]``.
    Ref: TypeAlias = type[T]
else:
    Ref = EntityRef
