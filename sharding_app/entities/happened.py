"""`Happened`: a committed event, with the entity, the number and the time that the journal has for
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

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
    _ref_class: Callable[[str], Any] = field(repr=False, compare=False)

    @property
    def ref(self) -> Any:
        """The ref of the entity."""
        return self._ref_class(self.entity_id)
