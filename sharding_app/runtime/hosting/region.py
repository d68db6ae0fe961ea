"""The hosts of one type in a node with several journals, one for each of them.

Contract: the messages of a process to a shard come to one host, in their order. A shard's row says
in which journal it lies. Until the row is read, messages wait with one host
(`parked.EarlyEnvelopes`), and later ones of the same epoch wait behind them.
"""

from collections.abc import Sequence
from itertools import groupby

from sharding_app.protocol.ids import Epoch, Incarnation, ShardId
from sharding_app.protocol.messages import Deliver
from sharding_app.runtime.hosting.shards import ShardLife
from sharding_app.runtime.hosting.type_host import TypeHost


class Region:
    def __init__(self) -> None:
        self.hosts: list[TypeHost] = []
        "The first one works with the journal in the cluster's own database."
        self.stopped_at: dict[ShardId, Epoch] = {}
        "Epochs of shards that are over here, whatever journal they lie in."

    def receive(self, source: Incarnation, messages: Sequence[Deliver]) -> None:
        """Take envelopes in their order."""
        for host, group in groupby(messages, self._host_of):
            host.receive(source, list(group))

    @property
    def number_of_shards(self) -> int:
        """The number of the type's shards in this node, whatever journal they lie in."""
        return sum(len(host.shards) for host in self.hosts)

    def shards_changed(self) -> None:
        """Share the type's limit of entities out anew: it is one for the shards of all journals."""
        for host in self.hosts:
            host.entity_life.shards_changed()

    def life_in(self, journal: str) -> ShardLife | None:
        """Return the life of the shards that lie in that journal. None: this node does not use
        it.
        """
        return next((host.shard_life for host in self.hosts if host.journal_name == journal), None)

    def _host_of(self, message: Deliver) -> TypeHost:
        shard, epoch = message.shard, message.epoch
        for host in self.hosts:
            if (shard, epoch) in host.early.waiting:
                return host
        for host in self.hosts:
            if shard in host.shards:
                return host
        return self.hosts[0]
