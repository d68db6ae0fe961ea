"""How many messages and timers of a node's shards may be in memory, and how the shards share it."""


class Memory:
    """The messages in memory of all shards of a node.

    Each shard may always hold its share. Half of the room is for shards that need more than that.
    """

    __slots__ = ("bytes", "max_bytes", "max_rows", "rows", "shards")

    def __init__(self, max_rows: int = 10_000, max_bytes: int = 32 * 1024 * 1024) -> None:
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.rows = 0
        self.bytes = 0
        self.shards = 0

    def has_room(self, rows: int, size: int) -> bool:
        """Tell whether `room` is more than 0: asked for each message that is staged."""
        if not rows:
            return True
        shares = 2 * max(self.shards, 1)
        if size >= self.max_bytes // shares and size >= self.max_bytes // 2 - self.bytes:
            return False
        return rows < self.max_rows // shares or self.rows < self.max_rows // 2

    def room(self, rows: int, size: int) -> int:
        """Return how many more messages a shard may hold that holds these rows and bytes.

        A shard without any always has room for one.
        """
        shares = 2 * max(self.shards, 1)
        if size >= max(self.max_bytes // shares, self.max_bytes // 2 - self.bytes) and rows:
            return 0
        return max(self.max_rows // shares - rows, self.max_rows // 2 - self.rows, int(not rows))
