"""In which journal the entities of a type lie, by the cluster's rows of its shards.

Contract: a journal's database may have rows of entities that do not lie there: a copy that is being
made of shards on their way there, or one that shards have left behind. A walk along the rows of a
type leaves these out.
"""

from collections.abc import Mapping

from sharding_app.protocol.ids import EntityId, ShardId
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.numbering import Numbering


class Whereabouts:
    def __init__(self, numbering: Numbering | None, journals: Mapping[ShardId, str]) -> None:
        """`numbering`: None where an extractor of the type's own decides about shards. `journals`:
        those of the shards that lie in further ones.
        """
        self._numbering = numbering
        self._journals = dict(journals)

    @property
    def by_hash(self) -> bool:
        """Whether an id tells its shard, whatever its rows say."""
        return self._numbering is not None

    @property
    def modulus(self) -> int:
        """The number of shards by which a hash tells the shard of an id, where no resize is under
        way; 0: an extractor does.
        """
        return 0 if self._numbering is None else self._numbering.shards

    def has(self, journal: str, shard: ShardId) -> bool:
        """Tell whether a shard lies in a journal."""
        return self._journals.get(shard, CLUSTERS_OWN) == journal

    def shard_of(self, entity: EntityId, written: ShardId) -> ShardId:
        """Return the shard of an entity. `written`: the shard that stands in one of its rows. It is
        that of the time at which the row was written, and holds where no resize is possible.
        """
        return written if self._numbering is None else self._numbering.shard_of(entity)

    def journal_of(self, entity: EntityId, written: ShardId) -> str:
        """Return the journal in which an entity lies."""
        if not self._journals:
            return CLUSTERS_OWN
        return self._journals.get(self.shard_of(entity, written), CLUSTERS_OWN)
