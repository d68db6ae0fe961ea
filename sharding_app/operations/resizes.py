"""What operators are told of resizes, and which of them are refused."""

from sharding_app.protocol.allocation.singleton import SINGLETON
from sharding_app.protocol.allocation.workers import WORKERS
from sharding_app.protocol.numbering import Numbering, why_not
from sharding_app.protocol.records import TypeConfig
from sharding_app.runtime.node.type_compatibility import by_hash


def why_refused(config: TypeConfig, wanted: int) -> str:
    """Return the reason why a type cannot be given that number of shards; empty: it can."""
    name = config.name
    if name.startswith(SINGLETON):
        return f"{name} is a singleton: it has one shard, and stays so."
    if name.startswith(WORKERS):
        return f"{name} is a set of workers: change their number with manage.py sharding_rescale."
    if not by_hash(config):
        return (
            f"{name} has an extractor of its own ({config.extractor}), which says the shards of its ids:"
            " only types whose shards the hash of the id says can be resized."
        )
    if config.wanted:
        return f"{name} {told(config.numbering)}. Wait until that is done."
    if why := why_not(config.number_of_shards, wanted):
        return f"{name} cannot be resized: {why}."
    return ""


def told(numbering: Numbering) -> str:
    """Say how many shards a type has, and how far a resize is."""
    if numbering.resizing:
        return (
            f"is being resized from {numbering.shards} to {numbering.wanted} shards:"
            f" {numbering.done} of {numbering.groups} groups are done"
        )
    return f"has {numbering.shards} shard{'s' if numbering.shards > 1 else ''}"
