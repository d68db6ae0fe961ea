"""What only newer versions of Python can write: deferred annotations (3.14), type parameters
(3.12).
"""

import sys
from pathlib import Path
from typing import Any

import pytest

from sharding_app import InvalidCall
from sharding_app.testing.local import LocalHost

TYPE_PARAMETERS = """
from sharding_app import EventSourced, applies, command, event

@event
class Put[T]:
    value: T

class Box[T](EventSourced):
    value: "T | None" = None

    @command
    def put[U](self, value: T, more: "list[T]", other: U) -> "list[T]":
        self.persist(Put(value))
        return [value, *more]

    @applies(Put)
    def on_put(self, happened: "Put[T]") -> None:
        self.value = happened.value

class IntBox(Box[int]): ...
"""

if sys.version_info >= (3, 14):
    # The same tests once more, with annotations that Python itself defers.
    _path = Path(__file__).with_name("test_annotations.py")
    _source = _path.read_text().replace("from __future__ import annotations", "")
    exec(compile(_source, str(_path), "exec"))  # noqa: S102 (our own file)

if sys.version_info >= (3, 12):

    @pytest.mark.asyncio
    async def test_type_parameters() -> None:
        space: dict[str, Any] = {"__name__": __name__}
        exec(TYPE_PARAMETERS, space)  # noqa: S102 (the text above)
        host = LocalHost(space["IntBox"])
        assert await host.run("put", 1, [2], "x") == [1, 2]
        assert host.state() == b'{"value":1}'
        with pytest.raises(InvalidCall, match="argument 'value': Expected `int`, got `str`"):
            await host.run("put", "a", [], None)
