"""The entities and nodes of a seed. Its number decides between two kinds, so that any row has both.

* Even: the plain kind, ordinary entities on equal nodes.
* Odd: the whole protocol. Besides the plain kind it has remembered entities, shards that need a
  lease, a singleton with a role (in every second of these seeds with a lease too, in every fourth
  with a schedule), a minimum of nodes before anything is allocated, an app version that rises with
  each rolling restart, and the judged strategy.

Four of 24 seeds, two of each kind, have numbered workers, and four others have projections.

Each seed has two more types with one property of their own. One comes in turn, so that any twelve
seeds have all of them in both kinds; the other is drawn by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, islice
from random import Random

from sharding_app.entities.entity_type import EntityType
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.journals import CLUSTERS_OWN, journal_of
from sharding_app.testing.simulation import projections
from sharding_app.testing.simulation.in_memory import BELL, LAMP, LAMPS
from sharding_app.testing.simulation.in_memory import SEEDS as IN_MEMORY_SEEDS
from sharding_app.testing.simulation.journals import journals_of, weights_of
from sharding_app.testing.simulation.particular import ALARM, KILN, MULE, RELAY, SLATE, TURNSTILE
from sharding_app.testing.simulation.resizes import AT_ONCE
from sharding_app.testing.simulation.senders import ACCOUNT, COURIER, ECHO, SAFE
from sharding_app.testing.simulation.workers import PORTER, SEEDS
from sharding_app.testing.simulation.workload import (
    CLERK,
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
PARTICULAR = (SLATE, KILN, ALARM, RELAY, TURNSTILE, MULE)
"""Types with one property of their own each."""
PARTICULAR_ONES = 2
"""Entities of each of these types."""
ACCOUNTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    whole_protocol: bool
    types: tuple[EntityType, ...]
    entities: tuple[Named, ...]
    "Entities that users call."
    hot: tuple[Named, ...]
    tills: tuple[Named, ...] = ()
    "Entities that write rows of their own, and get no other commands."
    senders: tuple[Named, ...] = ()
    "Entities that send durable messages and set timers, and those that they send messages to."
    in_memory: tuple[Named, ...] = ()
    "Entities that keep nothing in the journal. Users call each of them."
    looked_on: bool = False
    "Users also ask concurrent queries and many entities at once, and list ids."
    silent: tuple[Named, ...] = ()
    "Remembered entities that get one message in the beginning and none later."
    recovery_rate: tuple[int, float] | None = None
    moves: bool = True
    "Shards are also moved from outside, whatever the strategy says."

    @property
    def called(self) -> tuple[Named, ...]:
        """All that answer in calm times."""
        return (*self.entities, *self.in_memory)

    @property
    def is_scheduled(self) -> bool:
        """Whether a singleton has a schedule."""
        return CLERK in self.types or BELL in self.types

    def roles(self, number: int) -> tuple[str, ...]:
        """The roles of a node."""
        return (ROLE,) if self.whole_protocol and number < NODES_OF_THE_ROLE else ()

    def minimum(self, nodes: int) -> tuple[int, dict[str, int]]:
        """Return how many nodes must be up before anything is allocated: of all, of each role."""
        return (nodes, {ROLE: WANTED_OF_THE_ROLE}) if self.whole_protocol else (1, {})

    def coordinator(self, nodes: int) -> CoordinatorSettings:
        of_all, of_roles = self.minimum(nodes)
        return CoordinatorSettings(
            rebalance_interval_seconds=3.0, begin_hand_off_wait_seconds=0.3, hand_off_timeout_seconds=1.0,
            resized_at_once=AT_ONCE,
            min_members=of_all, min_members_of_role=of_roles,
        )  # fmt: skip


def cast_of(seed: int) -> Cast:
    first = PARTICULAR[seed // 2 % len(PARTICULAR)]
    random = Random(f"cast {seed}")
    drawn = first, random.choice([each for each in PARTICULAR if each is not first])
    particular = tuple(
        (made, f"{made.cls.__name__.lower()}-{number}") for made in drawn for number in range(PARTICULAR_ONES)
    )
    senders = _senders(seed)
    sending = tuple({made: None for made, _ in senders})
    if seed % 24 in SEEDS:
        sending = (*sending, PORTER)
    if seed % 24 in projections.SEEDS:
        sending = (*sending, *projections.WORKERS_OF)
    lamps = _lamps(seed)
    if lamps:
        sending = (*sending, LAMP)
        senders = (*senders, lamps[0])
    if not seed % 2:
        tills = tuple((TILL, f"till-{number}") for number in _tills(seed))
        return Cast(
            whole_protocol=False,
            types=(*TYPES, TILL, *drawn, *sending),
            entities=(*ENTITIES[:4], *ENTITIES[-4:], *particular),
            tills=tills,
            senders=senders,
            in_memory=lamps,
            silent=_silent(lamps),
            looked_on=_looked_on(seed),
            hot=(ENTITIES[0], ENTITIES[-1], particular[0]),
        )
    remembered = tuple((REMEMBERED, f"watch-{number}") for number in range(6))
    leased = tuple((LEASED, f"vault-{number}") for number in range(2))
    one = KEYHOLDER if seed % 4 == 3 else CLERK if seed % 8 == 5 else WARDEN
    singleton = one, str(one.singleton_id)
    if lamps:
        sending = (*sending, BELL)
    talked_to = (
        *ENTITIES[:2], *ENTITIES[-2:], *remembered[:2], *leased, singleton, singleton, *particular
    )  # fmt: skip
    return Cast(
        whole_protocol=True,
        types=(*TYPES, REMEMBERED, LEASED, one, *drawn, *sending),
        entities=talked_to,
        hot=(ENTITIES[0], singleton, remembered[0], leased[0], particular[0]),
        senders=senders,
        in_memory=(*lamps, (BELL, str(BELL.singleton_id))) if lamps else (),
        looked_on=_looked_on(seed),
        silent=(*remembered[3:], *_silent(lamps)),
        recovery_rate=(2, 0.05) if seed % 4 == 3 else None,
        moves=seed % 4 == 1,
    )


def _looked_on(seed: int) -> bool:
    """Choose seven of 48 seeds, of both kinds: one with an entity that stores its state as a whole,
    and two with a pipelined one.
    """
    return seed % 24 in (7, 10, 20) or seed % 48 == 25


def _lamps(seed: int) -> tuple[Named, ...]:
    """Return the remembered entities in memory that users call."""
    number = LAMPS if seed % 96 in IN_MEMORY_SEEDS else 0
    return tuple((LAMP, f"lamp-{each}") for each in range(number))


def _silent(lamps: tuple[Named, ...]) -> tuple[Named, ...]:
    """Return the remembered entity in memory that gets one message alone."""
    return ((LAMP, f"lamp-{len(lamps)}"),) if lamps else ()


def _tills(seed: int) -> list[int]:
    """Choose tills whose shards lie in the journal of the cluster: their rows stand beside those of
    the application.
    """
    weights, shards = weights_of(journals_of(seed)), TILL.settings.number_of_shards or 1
    own = (
        each
        for each in count()
        if journal_of(TILL.name, shard_of(f"till-{each}", shards), weights) == CLUSTERS_OWN
    )
    return list(islice(own, 2))


def _senders(seed: int) -> tuple[Named, ...]:
    """Return the entities of the types with durable messages, in four of eight seeds: two
    accounts, and two of three other types, in turn.
    """
    if seed % 8 not in (1, 2, 4, 7):
        return ()
    others = (COURIER, SAFE, ECHO)
    left_out = others[seed // 2 % len(others)]
    accounts = tuple((ACCOUNT, f"account-{number}") for number in range(ACCOUNTS))
    return (*accounts, *((made, f"{made.cls.__name__.lower()}-0") for made in others if made is not left_out))
