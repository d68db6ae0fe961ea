"""Shards: each has a live home, and each that is handed over arrives."""

from collections.abc import Iterator

from sharding_app.operations.console import counted
from sharding_app.operations.diagnosis.finding import Finding, error, note, warning
from sharding_app.operations.diagnosis.look import Look
from sharding_app.operations.each_journal import journal_name
from sharding_app.operations.resizes import told
from sharding_app.operations.snapshot import Unsettled
from sharding_app.protocol.coordinator.timeline import ranges
from sharding_app.protocol.liveness.membership import member_names
from sharding_app.protocol.records import ShardRow

LONG_CLOSED_SECONDS = 60.0
"""A shard that is closed for longer is worth a look: calls to it fail after their timeout."""


def examine(look: Look) -> Iterator[Finding]:
    cluster = look.cluster
    if cluster is None or not cluster.members:
        return
    names = member_names(cluster.members)
    hosted = {name for each in cluster.members for name in each.types}
    rescaled = {
        each.config.name
        for each in cluster.types
        if each.config.wanted or (each.workers is not None and each.workers.rescaling)
    }
    patience = look.limits.patience_seconds
    dead: dict[str, list[ShardRow]] = {}
    stopped: dict[str, list[ShardRow]] = {}
    slow: dict[str, list[ShardRow]] = {}
    longest: dict[str, float] = {}
    for each in cluster.unsettled:
        shard, seconds = each.row, each.seconds
        if shard.type not in hosted or seconds < patience:
            continue
        if shard.step == "stopped":
            if shard.type in rescaled or each.target is not None:
                continue  # so it has to be: until the others have stopped too, or it is opened
            stopped.setdefault(shard.type, []).append(shard)
        elif shard.home not in names:
            dead.setdefault(shard.type, []).append(shard)
        elif seconds > look.limits.hand_off_timeout_seconds + patience:
            slow.setdefault(shard.type, []).append(shard)
            longest[shard.type] = max(seconds, longest.get(shard.type, 0.0))
    for name, shards in dead.items():
        yield error(
            "D181", f"{_told(shards)} {name} at home on a node that is gone.", f"type {name}",
            "The coordinator gives them new homes within seconds. If not, see the other findings, and its log "
            "(sharding.coordinator).",
        )  # fmt: skip
    for name, shards in stopped.items():
        yield error(
            "D182", f"{_told(shards)} {name} without a home.", f"type {name}",
            "They get a home as soon as a node may take them. Check that there is a coordinator, that a node of the type's "
            "role hosts the type, that SHARDING['MIN_NODES'] and MIN_NODES_OF_ROLE are met, and that no shutdown is "
            "expected (D164).",
        )  # fmt: skip
    for name, shards in slow.items():
        homes = ", ".join(sorted({names[each.home] for each in shards if each.home is not None}))
        yield error(
            "D183", f"{_told(shards)} {name} handed over for {longest[name]:.0f} s and not stopped at {homes}.", f"type {name}",
            f"A handler blocks the event loop there, or the process is frozen: see its log. If it does not recover, kill "
            f"{homes}: its shards then move at once, and nothing acknowledged is lost.",
        )  # fmt: skip


def closings(look: Look) -> Iterator[Finding]:
    """Report shards that have no home since they are closed for a move to another journal."""
    closed: dict[tuple[str, str], list[Unsettled]] = {}
    for each in look.cluster.unsettled if look.cluster is not None else ():
        if each.target is not None and each.row.step == "stopped":
            closed.setdefault((each.row.type, each.target), []).append(each)
    for (name, target), moving in closed.items():
        seconds = max(each.closed_seconds for each in moving)
        finding = note if seconds < LONG_CLOSED_SECONDS else warning
        yield finding(
            "D188", f"{_told([each.row for each in moving])} {name} closed for a move to {journal_name(target)}, for {seconds:.0f} s.",
            f"type {name}",
            "Their last rows are moving, and calls wait meanwhile. If the command that moves them stops, the coordinator "
            "opens them within seconds. If it lasts, see the output of that command.",
        )  # fmt: skip


def rescales(look: Look) -> Iterator[Finding]:
    """Report sets of workers whose number is being changed: none of the new ones runs yet."""
    cluster = look.cluster
    if cluster is None:
        return
    names = member_names(cluster.members)
    for each in cluster.types:
        if each.workers is None or not each.workers.rescaling:
            continue
        homes = sorted(
            {
                names.get(row.home, row.home)
                for row in cluster.shards
                if row.type == each.config.name and row.home
            }
        )
        left = f"some still stop at {', '.join(homes)}" if homes else "all have stopped"
        yield warning(
            "D185", f"{each.config.name} is being rescaled from {each.workers.workers} to {each.workers.wanted} workers: {left}.",
            f"type {each.config.name}",
            "The new workers start when the old ones have stopped, a moment later. If it lasts, a worker ignores its "
            "cancellation (it is given up after HANDOFF_TIMEOUT_SECONDS), or there is no coordinator.",
        )  # fmt: skip


def resizes(look: Look) -> Iterator[Finding]:
    """Report types whose number of shards is being changed, and code that says another number than
    the rows.
    """
    cluster = look.cluster
    if cluster is None:
        return
    for each in cluster.types:
        name, numbering = each.config.name, each.config.numbering
        if numbering.resizing:
            yield warning(
                "D186", f"{name} {told(numbering)}.", f"type {name}",
                "A group changes when all of its shards have stopped, a moment after their hand-off begins. If the number "
                "of groups stays, a handler holds a shard up (D183), a transaction holds a row of sharding_message, or "
                "there is no coordinator.",
            )  # fmt: skip
        said = look.declared_shards.get(name)
        if each.config.revision and not numbering.resizing and said not in (None, numbering.shards):
            yield note(
                "D187", f"{name} has {numbering.shards} shards since a resize, and its code says {said}.", f"type {name}",
                f"The cluster goes by {numbering.shards}. Write number_of_shards={numbering.shards} into the code: after "
                "sharding_remove_data, and in a new cluster, the code's number holds.",
            )  # fmt: skip


def strategies(look: Look) -> Iterator[Finding]:
    """Report allocation strategies that raise, are slow, or return invalid answers."""
    for stats in look.nodes.stats.values() if look.nodes is not None else ():
        if stats.coordination is not None:
            for name, how in sorted(stats.coordination.failing.items()):
                yield warning(
                    "D184", f"The allocation strategy of {name} fails: {how}.", f"type {name}",
                    "The default strategy gives homes to its shards, and none of them is rebalanced. Correct allocate() "
                    "and rebalance(); see ShardAllocationStrategy for valid answers.",
                )  # fmt: skip


def _told(shards: list[ShardRow]) -> str:
    numbers = sorted(each.shard for each in shards)
    return (
        f"{counted(len(numbers), 'shard')} ({ranges(numbers[:20])}{', ...' if len(numbers) > 20 else ''}) of"
    )
