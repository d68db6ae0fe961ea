"""A command on its way: what the asker's process remembers of it until it is answered, failed or handed back."""

from typing import Any

import msgspec

from sharding_app.core.ids import EntityId, Epoch, Incarnation, ShardId


class Parcel(msgspec.Struct, eq=False):
    """One unresolved command. A struct, since one is made for each call: a fourth of the time of a class's __init__."""

    request: int
    type: str
    shard: ShardId
    entity: EntityId
    command: str
    args: bytes
    born: float
    deadline: float
    reply: Any = None
    "The shell's: the machine only carries it."
    command_id: str = ""
    safe: bool = True
    "May be handled again after its home died: it changes nothing, its effect is found in the journal, or its caller said so."
    chain: tuple[str, ...] = ()
    trace: str = ""
    attempt: int = 1
    deaths: int = 0
    told: bool = False
    "The asker has its answer (or its timeout); the parcel is kept for the order's sake only."
    home: Incarnation | None = None
    "Where it is outstanding; None while it waits here."
    epoch: Epoch = 0
    size: int = 0
    "About the bytes that it holds."

    def __post_init__(self) -> None:
        self.size = len(self.args) + 64
