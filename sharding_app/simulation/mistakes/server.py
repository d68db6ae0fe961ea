"""The server: what a commit in doubt is worth, and what is left of a server that has gone back."""

from __future__ import annotations

from typing import Any

from sharding_app.adapters.memory.standby import Standby
from sharding_app.simulation.mistakes.mistake import Mistake


def _believes_what_it_sees(real: Any) -> Any:
    def holds(self: Standby, kind: str, result: object) -> bool:
        return kind != "settle" and bool(real(self, kind, result))

    return holds


SERVER: dict[str, Mistake] = {
    "settles_without_the_standby": Mistake((3,), Standby, "holds", _believes_what_it_sees),
}
