"""`Ref`: the address of one entity. Making one checks the id and does nothing else.

Each entity type gets two small classes of its own, one for awaiting callers and one for ``.sync``, whose
attributes are the type's handlers: looking one up costs no dictionary and no ``__getattr__``.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar
from uuid import UUID

from sharding_app.errors import BadCall
from sharding_app.model import gateway, naming
from sharding_app.model.registry import registry
from sharding_app.model.remote import Remote, SyncRemote, refuse_on_loop

if TYPE_CHECKING:
    from sharding_app.model.handler import Handler
    from sharding_app.model.types import EntityType

T = TypeVar("T")


class BoundRef:
    """What refs have in common: the address and its options."""

    __slots__ = ("_ref_command_id", "_ref_id", "_ref_on_commit", "_ref_timeout")

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
        self._ref_id = naming.entity_id(entity_id)
        if timeout is not None and (
            isinstance(timeout, bool)
            or not isinstance(timeout, (int, float))
            or not 0 < timeout < float("inf")
        ):
            raise BadCall(f"timeout is a number of seconds above 0, not {timeout!r}")
        if command_id is not None:
            command_id = naming.command_id(command_id)
        self._ref_timeout = timeout
        self._ref_command_id = command_id
        self._ref_on_commit = on_commit

    @property
    def entity_id(self) -> str:
        """The entity's id."""
        return self._ref_id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundRef):
            return NotImplemented
        return self._ref_id == other._ref_id and self.type_name == other.type_name

    def __hash__(self) -> int:
        return hash((self._ref_id, self.type_name))

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} is not pickled: pass its entity_id and make the ref again")

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
    """What ``Cart.ref(id)`` gives at run time; users annotate it as ``Ref[Cart]``."""

    __slots__ = ()

    sync_class: ClassVar[type[SyncRef]]

    @property
    def sync(self) -> SyncRef:
        """The same entity for code without an event loop."""
        return self.sync_class(self._ref_id, self._ref_timeout, self._ref_command_id, self._ref_on_commit)

    async def exists(self) -> bool:
        """Whether the entity has ever stored anything, or is running now."""
        return await gateway.current().exists(self.type_name, self._ref_id, self._ref_timeout)

    @classmethod
    def __sharding_encode__(cls, ref: EntityRef[Any]) -> list[str]:
        return [ref.type_name, ref._ref_id]

    @classmethod
    def __sharding_decode__(cls, wanted: Any, value: Any) -> Any:
        if not (isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)):
            raise ValueError("a ref travels as [type, id]")
        entity_type = registry.get(value[0])
        for entity in getattr(wanted, "__args__", ()):
            if isinstance(entity, type) and not issubclass(entity_type.cls, entity):
                raise ValueError(f"a ref of {entity.__qualname__} is wanted, not of {value[0]!r}")
        return entity_type.ref_class(value[1])


class SyncRef(BoundRef):
    """``ref.sync``: calls block and give the reply itself."""

    __slots__ = ()

    def exists(self) -> bool:
        """Whether the entity has ever stored anything, or is running now."""
        refuse_on_loop(self, "exists")
        return gateway.current().exists_sync(self.type_name, self._ref_id, self._ref_timeout)

    def __repr__(self) -> str:
        return f"{super().__repr__()}.sync"


class _Attribute:
    """A handler as an attribute of a ref class."""

    __slots__ = ("_handler", "_remote")

    def __init__(self, handler: Handler, remote: type[Any]) -> None:
        self._handler = handler
        self._remote = remote

    def __get__(self, ref: BoundRef | None, owner: type[BoundRef]) -> Any:
        return self if ref is None else self._remote(ref, self._handler)


def ref_class(entity_type: EntityType) -> type[EntityRef[Any]]:
    """The ref class of a type, with its handlers as attributes; refused while its name means another."""
    registry.check_own(entity_type)
    common: dict[str, Any] = {"__slots__": (), "entity_type": entity_type, "type_name": entity_type.name}
    name = entity_type.cls.__name__
    asking = {key: _Attribute(value, Remote) for key, value in entity_type.commands.items()}
    blocking = {key: _Attribute(value, SyncRemote) for key, value in entity_type.commands.items()}
    sync = type(f"{name}SyncRef", (SyncRef,), {**common, **blocking})
    return type(f"{name}Ref", (EntityRef,), {**common, **asking, "sync_class": sync})


if TYPE_CHECKING:
    #: A ref, for annotations: ``Ref[Cart]`` is what ``Cart.ref(id)`` gives.
    Ref: TypeAlias = type[T]
else:
    Ref = EntityRef
