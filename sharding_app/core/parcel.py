"""A command on its way: what the asker's process remembers of it until it is answered, failed or handed back."""

from sharding_app.core.ids import EntityId, Epoch, Incarnation, ShardId


class Parcel:
    """One unresolved command. `reply` is the shell's: the machine only carries it."""

    __slots__ = (
        "args", "attempt", "born", "chain", "command", "command_id", "deadline", "deaths", "entity", "epoch", "home",
        "request", "reply", "safe", "shard", "size", "told", "trace", "type",
    )  # fmt: skip

    def __init__(
        self,
        request: int,
        type: str,  # noqa: A002  (the word that the whole protocol uses)
        shard: ShardId,
        entity: EntityId,
        command: str,
        args: bytes,
        *,
        born: float,
        deadline: float,
        reply: object = None,
        command_id: str = "",
        safe: bool = True,
        chain: tuple[str, ...] = (),
        trace: str = "",
    ) -> None:
        self.request = request
        self.type = type
        self.shard = shard
        self.entity = entity
        self.command = command
        self.args = args
        self.born = born
        self.deadline = deadline
        self.reply = reply
        self.command_id = command_id
        self.safe = safe
        "May be sent again after its home died: it has a command id, or changes nothing."
        self.chain = chain
        self.trace = trace
        self.attempt = 1
        self.deaths = 0
        self.told = False
        "The asker has its answer (or its timeout); the parcel is kept for the order's sake only."
        self.home: Incarnation | None = None
        "Where it is outstanding; None while it waits here."
        self.epoch: Epoch = 0
        self.size = len(args) + 64
