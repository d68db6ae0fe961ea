"""Whether a shard may hold one more message, asked in the short way and in the long one."""

from itertools import product

from sharding_app.protocol.delivery.memory import Memory


def test_there_is_room_exactly_where_some_is_left() -> None:
    for shards, held, size, all_rows, all_bytes in product(
        (0, 1, 3), (0, 1, 3, 4, 7), (0, 10, 40, 200), (0, 3, 7, 12), (0, 30, 90, 120)
    ):
        memory = Memory(max_rows=12, max_bytes=120)
        memory.shards, memory.rows, memory.bytes = shards, all_rows, all_bytes
        assert memory.has_room(held, size) is (memory.room(held, size) > 0), (shards, held, size, all_rows)
