"""Shards: each has a home that lives, and one that is handed over arrives."""

from collections.abc import Iterator

from sharding_app.core.moves import ranges
from sharding_app.doctor.finding import Finding, error, warning
from sharding_app.doctor.look import Look, ShardLook
from sharding_app.management.console import counted

PATIENCE_SECONDS = 10.0
"""A coordinator gives new homes within moments; a new one needs a few seconds to be elected."""
FORGOTTEN_STEP = "stopped"


def examine(look: Look) -> Iterator[Finding]:
    cluster = look.cluster
    if cluster is None or not cluster.members:
        return
    present = {each.incarnation for each in cluster.members}
    hosted = {name for each in cluster.members for name in each.types}
    dead: dict[str, list[ShardLook]] = {}
    stopped: dict[str, list[ShardLook]] = {}
    slow: dict[str, list[ShardLook]] = {}
    for shard in cluster.shards:
        if shard.type not in hosted or shard.seconds < PATIENCE_SECONDS:
            continue
        if shard.step == FORGOTTEN_STEP:
            stopped.setdefault(shard.type, []).append(shard)
        elif shard.home not in present:
            dead.setdefault(shard.type, []).append(shard)
        elif (
            shard.step == "handoff"
            and shard.seconds > look.limits.hand_off_timeout_seconds + PATIENCE_SECONDS
        ):
            slow.setdefault(shard.type, []).append(shard)
    for name, shards in dead.items():
        yield error(
            "D181", f"{_told(shards)} {name} at home on a node that is gone.", f"type {name}",
            "The coordinator gives them new homes within seconds; if it does not, see what else is found here, and its log "
            "(sharding.coordinator).",
        )  # fmt: skip
    for name, shards in stopped.items():
        yield warning(
            "D182", f"{_told(shards)} {name} without a home.", f"type {name}",
            "Each that has lived before gets one by itself as soon as a node may take it. Is there a coordinator, does a node "
            "of its role host the type, are as many nodes up as SHARDING['MIN_NODES'] and MIN_NODES_OF_ROLE want, and is no "
            "shutdown expected (D164)?",
        )  # fmt: skip
    for name, shards in slow.items():
        names = {each.incarnation: each.name for each in cluster.members}
        homes = ", ".join(sorted({names[each.home] for each in shards if each.home in names}))
        longest = max(each.seconds for each in shards)
        yield error(
            "D183", f"{_told(shards)} {name} handed over for {longest:.0f} s and not stopped at {homes}.", f"type {name}",
            f"Something there holds its event loop, or is frozen: look at its log. If it does not recover, end {homes}: its "
            "shards then move at once, and nothing acknowledged is lost.",
        )  # fmt: skip


def strategies(look: Look) -> Iterator[Finding]:
    """A type's own allocation strategy raises, takes long, or answers what cannot be."""
    for stats in look.nodes.stats.values() if look.nodes is not None else ():
        if stats.coordination is not None:
            for name, how in sorted(stats.coordination.failing.items()):
                yield warning(
                    "D184", f"The allocation strategy of {name} fails: {how}.", f"type {name}",
                    "Meanwhile the default strategy gives homes to its shards, and none of them is rebalanced. Mend allocate() "
                    "and rebalance(); ShardAllocationStrategy says what they may answer.",
                )  # fmt: skip


def _told(shards: list[ShardLook]) -> str:
    numbers = sorted(each.shard for each in shards)
    return (
        f"{counted(len(numbers), 'shard')} ({ranges(numbers[:20])}{', ...' if len(numbers) > 20 else ''}) of"
    )
