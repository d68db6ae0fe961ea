"""The nodes: are they there, do they live, hear and answer, are they of one version, may they host what they want to."""

from collections import Counter
from collections.abc import Iterator

from sharding_app.core.ids import Incarnation
from sharding_app.core.records import Member
from sharding_app.core.wire import kept_out
from sharding_app.doctor.finding import Finding, error, note, warning
from sharding_app.doctor.look import ClusterLook, Look
from sharding_app.management.console import counted

LOCKS = 2


def present(look: Look) -> Iterator[Finding]:
    cluster = look.cluster
    if cluster is None:
        return
    if not cluster.members:
        yield error(
            "D161", "No node is there: every command fails.", "cluster", "Start `manage.py sharding_node`, one for each core."
        )  # fmt: skip
        return
    if all(each.incarnation != cluster.coordinator.incarnation for each in cluster.members):
        candidates = any(each.candidate and each.state == "up" for each in cluster.members)
        yield error(
            "D162", "There is no coordinator: known shards go on, new ones wait.", "cluster",
            "One is elected within seconds while a node is up: look again, then into the nodes' logs (sharding.coordinator)."
            if candidates
            else "No node that is up may coordinate: see SHARDING['COORDINATOR'] of the nodes, and start one that may.",
        )  # fmt: skip
    for name, count in Counter(each.name for each in cluster.members).items():
        if count > 1:
            yield note(
                "D163", f"{count} nodes are called {name}.", f"node {name}",
                "Give each a name of its own (sharding_node --name): lists and ExternalAllocation go by names.",
            )  # fmt: skip
    asked = [each.name for each in cluster.members if each.asked == "prepare"]
    if asked:
        yield note(
            "D164", f"The cluster has been told to expect its shutdown ({', '.join(asked)}): no shard moves.", "cluster",
            "If it shall go on after all: manage.py sharding_shutdown --all --cancel",
        )  # fmt: skip


def alive(look: Look) -> Iterator[Finding]:
    for member in look.cluster.members if look.cluster is not None else ():
        where = _where(member)
        if member.state != "joining" and member.locks < LOCKS:
            held = "neither of its locks" if member.locks == 0 else "only one of its two locks"
            yield error(
                "D165", f"Node {member.name} is suspect: it holds {held} in PostgreSQL.", where,
                "It is frozen, cut off or dead, and is given up after its lease. If it stays so, look at its log "
                "(sharding.lifeline) and for a pooler between it and PostgreSQL.",
            )  # fmt: skip
        if member.deaf:
            yield error(
                "D166", f"Node {member.name} is deaf: it does not hear itself through the channel layer.", where,
                "Is Redis reachable from that machine? Its shards move to others, if those hear.",
            )  # fmt: skip
        elif look.nodes is not None and member.incarnation in look.nodes.silent:
            heard = _heard_by_coordinator(look)
            unheard = "" if heard is None or member.incarnation in heard else (
                " The coordinator has not heard it through the channel layer either, so it is given no shards."
            )  # fmt: skip
            yield warning(
                "D167", f"Node {member.name} did not answer within a second.{unheard}", where,
                "It is busy, frozen, or does not hear this process: do its CHANNEL_LAYERS and SHARDING['KEYS'] equal those "
                "here? Its log names handlers that hold the event loop.",
            )  # fmt: skip


def versions(look: Look) -> Iterator[Finding]:
    cluster = look.cluster
    if cluster is None:
        return
    found: dict[str, list[str]] = {}
    for each in cluster.members:
        found.setdefault(each.app_version, []).append(each.name)
    if len(found) > 1:
        told = "; ".join(f"{version}: {', '.join(names)}" for version, names in sorted(found.items()))
        yield warning(
            "D168", f"Nodes run different versions of the application, so nothing is rebalanced ({told}).", "cluster",
            "Finish the roll-out, or take it back: restart the nodes of the other version.",
        )  # fmt: skip


def refused(look: Look) -> Iterator[Finding]:
    """A type whose configuration differs from the cluster's, with both sides."""
    if look.nodes is None:
        return
    names = _names(look.cluster)
    fix = (
        "Make them equal and restart that process; or, to take the new configuration, stop all nodes and run "
        "manage.py sharding_remove_data TYPE."
    )
    for incarnation, answer in look.nodes.answers.items():
        for name, why in sorted(answer.refused.items()):
            where = f"node {names.get(incarnation, incarnation)}"
            yield error("D169", f"{where.capitalize()} may not host {name}: {why}.", where, fix)
    for name, why in sorted(look.nodes.refused_here.items()):
        yield error("D170", f"This project may not call {name}: {why}.", "this process", fix)


def cannot_start(look: Look) -> Iterator[Finding]:
    """Entities that should be in memory and whose constructor or recovery raises."""
    if look.nodes is None:
        return
    names = _names(look.cluster)
    for incarnation, answer in look.nodes.stats.items():
        for each in answer.types:
            if not each.cannot_start or not each.failed_starts:
                continue
            first = each.failed_starts[0]
            tried = f"{first.attempts} times in {first.since_seconds:.0f} s"
            many = "1 entity" if each.cannot_start == 1 else f"{each.cannot_start} entities"
            text = f"{many} of {each.type} cannot start: {first.entity!r}: {first.error}, {tried}."
            where = f"node {names.get(incarnation, incarnation)}"
            fix = "The node's log has the traceback (sharding.region, recovery_failed); D192 to D194 name what cannot be read. "
            if first.retry_seconds < 0:
                yield warning("D176", text, where, fix + "Each is tried again by its next message.")
            else:
                yield error(
                    "D175", text, where, fix + "They are tried again by themselves, every few seconds."
                )


def full(look: Look) -> Iterator[Finding]:
    """As many entities in memory as may be: each call to another one recovers it, and another one leaves."""
    names = _names(look.cluster)
    for incarnation, answer in look.nodes.answers.items() if look.nodes is not None else ():
        for region in answer.regions:
            if region.is_full:
                where = f"node {names.get(incarnation, incarnation)}"
                yield note(
                    "D177",
                    f"{where.capitalize()} holds {sum(region.entities)} entities of {region.type}, of at most {region.limit}.",
                    where,
                    "Others leave the memory for those that are called, and are recovered when their turn comes: the counter "
                    "`evicted` tells how many. Start more nodes, or raise ACTIVE_ENTITY_LIMIT where there is memory.",
                )  # fmt: skip


def kept_out_nodes(look: Look) -> Iterator[Finding]:
    """Releases that are too far from each other to speak."""
    if look.cluster is None:
        return
    names = _names(look.cluster)
    for incarnation, why in kept_out(look.cluster.members).items():
        name = names.get(incarnation, incarnation)
        yield error(
            "D173", f"Node {name} is refused: {why}.", f"node {name}",
            "Releases that follow each other run together; one that is further away has to be updated in steps.",
        )  # fmt: skip


def refused_here(look: Look) -> Iterator[Finding]:
    if look.refused:
        yield error(
            "D174", look.refused, "this process",
            "Install the release that the nodes run, or one next to it; nodes could not be asked from here.",
        )  # fmt: skip


def hosted(look: Look) -> Iterator[Finding]:
    cluster = look.cluster
    if cluster is None or not cluster.members:
        return
    for config in cluster.types:
        if all(config.name not in each.types for each in cluster.members):
            role = f" of role {config.role!r}" if config.role else ""
            yield note(
                "D171", f"No node{role} hosts {config.name}: commands to it fail.", f"type {config.name}",
                f"Start a node{role} whose project has the type: this one, or another one on this database. If the type is gone "
                f"for good in all of them: manage.py sharding_remove_data {config.name}; other nodes may go on meanwhile.",
            )  # fmt: skip
    without = [each.name for each in cluster.members if each.state == "up" and not each.types]
    if without:
        yield note(
            "D172", f"{counted(len(without), 'node')} up without a type to host: {', '.join(without)}.", "cluster",
            "Their roles fit no type, or their types were refused.",
        )  # fmt: skip


def _where(member: Member) -> str:
    return f"node {member.name} ({member.host}, process {member.pid})"


def _heard_by_coordinator(look: Look) -> list[Incarnation] | None:
    """The nodes that have registered with it; None: it says nothing, or no node coordinates."""
    if look.nodes is None or look.cluster is None:
        return None
    stats = look.nodes.stats.get(look.cluster.coordinator.incarnation or "")
    return None if stats is None or stats.coordination is None else stats.coordination.heard


def _names(cluster: ClusterLook | None) -> dict[str, str]:
    return {each.incarnation: each.name for each in cluster.members} if cluster is not None else {}
