"""The numbers of a type's shards, also while they are being changed.

    A resize from N to M shards, where one of the two is a multiple of the other

      group g of the smaller number G:  all ids whose hash is g modulo G
        before its step   its shards are g, g + G, g + 2G, ... below N
        after its step    its shards are g, g + G, g + 2G, ... below M

Contract: groups change in their order, each as a whole, while no shard of it has a home. So an id
has one shard at any time, and the number of groups that have changed says which. Each change has a
higher revision. Shards of groups that wait, and of those that have changed, live on as usual.
"""

from zlib import crc32

import msgspec

from sharding_app.protocol.ids import EntityId, ShardId

MOST_SHARDS = 1_000_000
"""No resize makes more: each is a row, and has a place in the coordinator's memory."""


class Numbering(msgspec.Struct, frozen=True, array_like=True):
    shards: int
    "The number of shards; during a resize, of the groups that have not changed."
    wanted: int = 0
    "The number that a resize is to reach; 0: none is under way."
    done: int = 0
    "How many groups the resize has changed."
    revision: int = 0
    "Rises with each change of these, and where further journals may follow a change that was lost."

    @property
    def resizing(self) -> bool:
        return self.wanted > 0

    @property
    def groups(self) -> int:
        return min(self.shards, self.wanted) if self.wanted else self.shards

    @property
    def most(self) -> int:
        """The number above that of all shards that there are at some time of the resize."""
        return max(self.shards, self.wanted)

    @property
    def total(self) -> int:
        """How many shards there are now."""
        changed = self.done * (self.wanted // self.groups)
        return changed + (self.groups - self.done) * (self.shards // self.groups)

    def modulus(self, place: int) -> int:
        """Return the number of shards that holds for a hash, or for a shard."""
        return self.wanted if self.wanted and place % self.groups < self.done else self.shards

    def shard_of(self, entity: EntityId) -> ShardId:
        place = crc32(entity.encode())
        return place % self.modulus(place)

    def has(self, shard: ShardId) -> bool:
        """Tell whether there is such a shard now."""
        return 0 <= shard < self.modulus(shard)

    def stands_for(self, shard: ShardId, theirs: "Numbering") -> ShardId:
        """Return the shard that has the entities of `shard`, which lives by other numbers."""
        return shard if self.has(shard) else shard % min(self.groups, theirs.groups)

    def step(self, at_once: int) -> int:
        """Return the number of changed groups after the present step, which concerns about
        `at_once` shards: one group at least.
        """
        shards_of_group = self.most // self.groups
        return min(self.groups, self.done + max(1, at_once // shards_of_group))

    def closed(self, shard: ShardId, at_once: int) -> bool:
        """Tell whether a shard may have no home now, since its group is about to change."""
        return self.resizing and self.done <= shard % self.groups < self.step(at_once)

    def former(self, upto: int) -> list[ShardId]:
        """Return the shards of the groups that change in the step to `upto`, as they are before."""
        return _shards(self.done, upto, self.groups, self.shards)

    def later(self, upto: int) -> list[ShardId]:
        """Return the shards of the same groups as they are after the step."""
        return _shards(self.done, upto, self.groups, self.wanted)

    def after(self, upto: int) -> "Numbering":
        """Return the numbers after the step to `upto`."""
        if upto == self.groups:
            return Numbering(self.wanted, 0, 0, self.revision + 1)
        return Numbering(self.shards, self.wanted, upto, self.revision + 1)


def _shards(first: int, beyond: int, groups: int, number: int) -> list[ShardId]:
    return sorted(shard for group in range(first, beyond) for shard in range(group, number, groups))


def why_not(shards: int, wanted: int) -> str:
    """Return the reason why a number of shards cannot be changed to another; empty: it can."""
    if not 1 <= wanted <= MOST_SHARDS:
        return f"the number of shards must be from 1 to {MOST_SHARDS}, not {wanted}"
    if wanted == shards:
        return f"there are {shards} shards already"
    if wanted % shards and shards % wanted:
        return f"{wanted} is neither a multiple nor a divisor of {shards}, the present number"
    return ""
