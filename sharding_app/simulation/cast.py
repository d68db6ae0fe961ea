"""Who plays in a seed. The number of a seed says which of two kinds it is, so that any row of seeds has both.

* Even: the plain kind, ordinary entities on equal nodes.
* Odd: the whole protocol. The same, and besides remembered entities, shards that need a lease, a singleton with a role
  (in every second of these seeds with a lease too), a minimum of nodes before anything is allocated, an app version that
  rises with each rolling restart, and the judged strategy.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharding_app.core.coordinator import CoordinatorSettings
from sharding_app.model.types import EntityType
from sharding_app.simulation.workload import (
    ENTITIES,
    KEYHOLDER,
    LEASED,
    REMEMBERED,
    ROLE,
    TILL,
    TYPES,
    WARDEN,
)

Named = tuple[EntityType, str]
NODES_OF_THE_ROLE = 3
WANTED_OF_THE_ROLE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    whole_protocol: bool
    types: tuple[EntityType, ...]
    entities: tuple[Named, ...]
    "What users talk to."
    hot: tuple[Named, ...]
    tills: tuple[Named, ...] = ()
    "Those that write rows of their own, and are asked for nothing else."
    silent: tuple[Named, ...] = ()
    "Remembered ones that get a message in the beginning, and never again."
    recovery_rate: tuple[int, float] | None = None
    moves: bool = True
    "Shards are also moved around from outside, whatever the strategy says."

    def roles(self, number: int) -> tuple[str, ...]:
        """The roles of a node."""
        return (ROLE,) if self.whole_protocol and number < NODES_OF_THE_ROLE else ()

    def minimum(self, nodes: int) -> tuple[int, dict[str, int]]:
        """How many nodes have to be up before anything is allocated: of all, and of each role."""
        return (nodes, {ROLE: WANTED_OF_THE_ROLE}) if self.whole_protocol else (1, {})

    def coordinator(self, nodes: int) -> CoordinatorSettings:
        of_all, of_roles = self.minimum(nodes)
        return CoordinatorSettings(
            rebalance_interval_seconds=3.0, begin_hand_off_wait_seconds=0.3, hand_off_timeout_seconds=1.0,
            min_members=of_all, min_members_of_role=of_roles,
        )  # fmt: skip


def cast_of(seed: int) -> Cast:
    if not seed % 2:
        tills = tuple((TILL, f"till-{number}") for number in range(2))
        return Cast(
            whole_protocol=False,
            types=(*TYPES, TILL),
            entities=ENTITIES,
            tills=tills,
            hot=(ENTITIES[0], ENTITIES[-1]),
        )
    remembered = tuple((REMEMBERED, f"watch-{number}") for number in range(6))
    leased = tuple((LEASED, f"vault-{number}") for number in range(2))
    one = KEYHOLDER if seed % 4 == 3 else WARDEN
    singleton = one, str(one.singleton_id)
    talked_to = (*ENTITIES[:3], *ENTITIES[-2:], *remembered[:3], *leased, singleton, singleton)
    return Cast(
        whole_protocol=True,
        types=(*TYPES, REMEMBERED, LEASED, one),
        entities=talked_to,
        hot=(ENTITIES[0], singleton, remembered[0], leased[0]),
        silent=remembered[3:],
        recovery_rate=(2, 0.05) if seed % 4 == 3 else None,
        moves=seed % 4 == 1,
    )
