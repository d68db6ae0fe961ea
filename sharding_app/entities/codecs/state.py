"""The state of an entity as JSON: its annotated attributes, or the result of its own
``snapshot()``.

Attributes that were never set are left out, and loading leaves them as ``__init__`` made them;
stored attributes that the class no longer has are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sharding_app.entities.codecs.values import Exact
from sharding_app.errors import UnreadableState
from sharding_app.redaction import told, told_reading

_HINT = ". Annotate other attributes as ClassVar, or set them in __init__ only, or define snapshot() and restore(state)"


class AttributeState:
    """The annotated attributes, by name."""

    __slots__ = ("_codec", "_names", "_record", "_what")

    def __init__(self, fields: dict[str, Any], what: str) -> None:
        self._what = f"{what}: its state"
        self._names = tuple(fields)
        # UNSET as a default: an attribute that was never set is neither written nor missed.
        wanted = [(name, kind, msgspec.UNSET) for name, kind in fields.items()]
        self._record: Any = msgspec.defstruct("State", wanted)
        self._codec = Exact(self._record, self._what, _HINT)

    def dump(self, obj: Any) -> bytes:
        """Return the state of `obj`; `NotSerializable` names the attribute that does not fit."""
        unset = msgspec.UNSET
        return self._codec.encode(self._record(*[getattr(obj, name, unset) for name in self._names]))

    def load(self, obj: Any, data: bytes | str) -> None:
        """Set the attributes of `obj` from a stored state."""
        try:
            record = self._codec.decode(data)
        except Exception as error:
            raise UnreadableState(f"{self._what} cannot be read: {told_reading(error)}") from error
        unset = msgspec.UNSET
        for name in self._names:
            value = getattr(record, name)
            if value is not unset:
                setattr(obj, name, value)


class OwnState:
    """State through the class's own ``snapshot()`` and ``restore(state)``."""

    __slots__ = ("_codec", "_restore", "_snapshot", "_what")

    def __init__(
        self,
        snapshot: Callable[[Any], Any],
        restore: Callable[[Any, Any], None],
        wanted: Any,
        what: str,
    ) -> None:
        self._what = f"{what}: its snapshot"
        self._snapshot = snapshot
        self._restore = restore
        self._codec = Exact(wanted, self._what)

    def dump(self, obj: Any) -> bytes:
        """Do as `AttributeState.dump`."""
        return self._codec.encode(self._snapshot(obj))

    def load(self, obj: Any, data: bytes | str) -> None:
        """Do as `AttributeState.load`."""
        try:
            self._restore(obj, self._codec.decode(data))
        except Exception as error:
            raise UnreadableState(f"{self._what} cannot be read: {told(error)}") from error
