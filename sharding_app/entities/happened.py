"""`Happened`: a committed event, with the entity, the number and the time that the journal has for
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sharding_app.entities.registry import registry

if TYPE_CHECKING:
    from sharding_app.entities.refs import EntityRef

E_co = TypeVar("E_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Happened(Generic[E_co]):
    """A committed event of an entity."""

    event: E_co
    entity_id: str
    #: 1 for the entity's first event; without gaps.
    number: int
    #: The server's time at the begin of the transaction that stored it.
    at: datetime
    #: The name of the entity's type.
    type_name: str

    @property
    def ref(self) -> EntityRef[Any]:
        """The ref of the entity."""
        return registry.get(self.type_name).ref_class(self.entity_id)
