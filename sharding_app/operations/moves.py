"""Which shards move between journals, and which have left a copy behind.

For the command `sharding_move_journal`, the pages and the doctor.
"""

from typing import NamedTuple

from django.db.models.functions import Greatest

from sharding_app.adapters.django.database import journal_alias
from sharding_app.models import Shard, ShardMove
from sharding_app.protocol.ids import ShardId


class Moving(NamedTuple):
    type: str
    shard: ShardId
    source: str
    target: str
    step: str


class Lying(NamedTuple):
    """Where a shard lies, by the cluster's rows."""

    shard: ShardId
    journal: str


class Moves(NamedTuple):
    moves: list[Moving]
    lying: list[Lying]
    "Of the type that was asked about; without one empty."


def read_moves(type_name: str | None = None) -> Moves:
    """Read the moves of a type, or of all. Raises DatabaseError."""
    alias = journal_alias()
    rows = ShardMove.objects.using(alias)
    lying: list[Lying] = []
    if type_name is not None:
        rows = rows.filter(type__name=type_name)
        # Rows beyond the number of shards are those of a former, larger one.
        number = Greatest("type__number_of_shards", "type__shards_wanted")
        found = Shard.objects.using(alias).filter(type__name=type_name, shard__lt=number).order_by("shard")
        lying = [Lying(*each) for each in found.values_list("shard", "journal")]
    wanted = rows.order_by("type__name", "shard").values_list(
        "type__name", "shard", "source", "target", "step"
    )
    return Moves([Moving(*each) for each in wanted], lying)
