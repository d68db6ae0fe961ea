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

_VERSION, _STORED_VERSION = "sharding_version_", "?version"
"""The version of a state as a field, and its key in JSON, which is no attribute's name.

Version 1 is not written.
"""


class AttributeState:
    """The annotated attributes, by name."""

    __slots__ = ("_codec", "_names", "_record", "_version", "_what")

    def __init__(self, fields: dict[str, Any], what: str, version: int = 1) -> None:
        self._what = f"{what}: its state"
        self._names = tuple(fields)
        # UNSET as a default: an attribute that was never set is neither written nor missed.
        wanted = [(name, kind, msgspec.UNSET) for name, kind in fields.items()]
        wanted.append((_VERSION, int, msgspec.UNSET))
        self._record: Any = msgspec.defstruct("State", wanted, rename={_VERSION: _STORED_VERSION})
        self._version: Any = msgspec.UNSET if version == 1 else version
        self._codec = Exact(self._record, self._what, _HINT)

    def dump(self, obj: Any) -> bytes:
        """Return the state of `obj`; `NotSerializable` names the attribute that does not fit."""
        unset = msgspec.UNSET
        values = [getattr(obj, name, unset) for name in self._names]
        return self._codec.encode(self._record(*values, self._version))

    def load(self, obj: Any, data: bytes | str) -> None:
        """Set the attributes of `obj` from a stored state."""
        try:
            record = self._codec.decode(data)
        except Exception as error:
            raise UnreadableState(f"{self._what} cannot be read: {told_reading(error)}") from error
        version = getattr(record, _VERSION)
        if version != self._version:
            was, wanted = (1 if each is msgspec.UNSET else each for each in (version, self._version))
            raise UnreadableState(f"{self._what} is of version {was}, and this code reads version {wanted}")
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
