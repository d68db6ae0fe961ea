"""Resizes: rows that stay behind, callers with former numbers, steps that never come.

Guards behind these, which no seed has needed yet, have tests of their own: a home that takes
entities of other shards in tests/unit/runtime/hosting/test_entities_elsewhere.py, calls that pass
those under way to former shards in tests/unit/protocol/test_renumbered_region.py, a step while a
shard has a home in tests/contract/test_resizing.py.
"""

from collections.abc import Mapping
from typing import Any

from sharding_app.adapters.memory.cluster_writes import Moving
from sharding_app.protocol.coordinator.resizing import Resizing
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.region import RegionRoutes
from tests.simulation.mistakes.mistake import Mistake, nothing, yes


def _leaves_those_of_others(real: Any) -> Any:
    def read(self: Any, numbers: Mapping[str, Numbering]) -> None:
        """Go on with no resize that another coordinator was asked for."""
        known = self._placement.numbers
        own = dict(numbers)
        for name, each in numbers.items():
            if name not in known and each.resizing:
                own[name] = Numbering(each.shards, 0, 0, each.revision)
            elif name in known and known[name].revision == each.revision:
                own[name] = known[name]
        real(self, own)

    return read


RESIZING: dict[str, Mistake] = {
    "rows_stay_behind": Mistake((0, 10, 15, 16), Moving, "carry_out", lambda _: yes),
    "callers_learn_no_numbers": Mistake((2, 8, 10), RegionRoutes, "renumbered", lambda _: nothing),
    "resizes_end_with_their_coordinator": Mistake((10,), Resizing, "read", _leaves_those_of_others),
}
