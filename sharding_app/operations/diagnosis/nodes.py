"""The nodes: whether they run, hold their locks, hear, answer, agree in version and may host
types.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sharding_app.operations.console import counted, some
from sharding_app.operations.diagnosis.finding import Finding, error, note, warning
from sharding_app.operations.diagnosis.look import Look
from sharding_app.operations.snapshot import ClusterSnapshot
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.liveness.membership import member_names
from sharding_app.protocol.messages import FailedStart
from sharding_app.protocol.versions import kept_out

LOCKS = 2


def present(look: Look) -> Iterator[Finding]:
    cluster = look.cluster
    if cluster is None:
        return
    if not cluster.members:
        yield error(
            "D161", "No node is running: every command fails.", "cluster", "Start `manage.py sharding_node`, one per core."
        )  # fmt: skip
        return
    if not cluster.has_coordinator:
        candidates = any(each.candidate and each.state == "up" and each.locks for each in cluster.members)
        gone = "the last one is gone" if cluster.coordinator.incarnation else "none has been elected yet"
        yield error(
            "D162", f"There is no coordinator ({gone}). Shards with a home work; others wait.", "cluster",
            "One is elected within seconds if a node is up. Check again, then see the nodes' logs (sharding.coordinator)."
            if candidates
            else "No node that holds its locks may coordinate. Start one that may (SHARDING['COORDINATOR']); D165 names those that"
            " are dead.",
        )  # fmt: skip
    for name, count in Counter(each.name for each in cluster.members).items():
        if count > 1:
            yield note(
                "D163", f"{count} nodes are named {name}.", f"node {name}",
                "Give each node its own name (sharding_node --name): lists and ExternalAllocation identify nodes by name.",
            )  # fmt: skip
    asked = [each.name for each in cluster.members if each.asked == "prepare"]
    if asked:
        yield note(
            "D164", f"The cluster has been told to expect its shutdown ({', '.join(asked)}): no shard moves.", "cluster",
            "To cancel the shutdown: manage.py sharding_shutdown --all --cancel",
        )  # fmt: skip


def alive(look: Look) -> Iterator[Finding]:
    names = _names(look.cluster)
    for member in look.cluster.members if look.cluster is not None else ():
        name = names[member.incarnation]
        where = f"node {name} ({member.host}, process {member.pid})"
        if member.state != "joining" and member.locks < LOCKS:
            held = "neither of its locks" if member.locks == 0 else "only one of its two locks"
            yield error(
                "D165", f"Node {name} is suspect: it holds {held} in PostgreSQL.", where,
                "It is frozen, cut off or dead, and is declared dead when its lease ends. If this persists, check its log "
                "(sharding.lifeline) and for a pooler between it and PostgreSQL.",
            )  # fmt: skip
        if member.deaf:
            yield error(
                "D166", f"Node {name} is deaf: no messages of other processes reach it.", where,
                "Check the ways from other nodes to that machine (LINK_ADDRESS), and to Redis where links need the channel layer. "
                "Its shards move to other nodes if those hear.",
            )  # fmt: skip
        elif look.nodes is not None and member.incarnation in look.nodes.silent:
            heard = _heard_by_coordinator(look)
            unheard = "" if heard is None or member.incarnation in heard else (
                " The coordinator has not heard from it either, so it gets no shards."
            )  # fmt: skip
            yield error(
                "D167", f"Node {name} did not answer within a second.{unheard}", where,
                "It is busy, frozen, or does not hear this process. Check that it has the same SHARDING['KEYS'], LINKS and "
                "CHANNEL_LAYERS as here. Its log names handlers that block the event loop.",
            )  # fmt: skip


def asked(look: Look) -> Iterator[Finding]:
    """Report that no node at all can be asked from here."""
    members = look.cluster.members if look.cluster is not None else ()
    if look.nodes is not None and members and all(each.incarnation in look.nodes.silent for each in members):
        yield error(
            "D179", "No node answers this process.", "this process",
            "Check that both have the same SHARDING['KEYS'], LINKS and CHANNEL_LAYERS. On other machines than the nodes' "
            "it needs their LINK_ADDRESS, or the channel layer (Redis).",
        )  # fmt: skip


def versions(look: Look) -> Iterator[Finding]:
    cluster = look.cluster
    if cluster is None:
        return
    found: dict[str, list[str]] = {}
    for each in cluster.members:
        found.setdefault(each.app_version or "none", []).append(each.name)
    if len(found) > 1:
        told = "; ".join(f"{version}: {', '.join(names)}" for version, names in sorted(found.items()))
        yield warning(
            "D168", f"Nodes run different versions of the application, so nothing is rebalanced ({told}).", "cluster",
            "Finish the roll-out, or roll back: restart the nodes of the other version.",
        )  # fmt: skip


def refused(look: Look) -> Iterator[Finding]:
    """Find types whose configuration differs from the cluster's, with both sides."""
    names = _names(look.cluster)
    fix = (
        "Make them equal and restart that process. Or, to use the new configuration, stop all nodes and run "
        "manage.py sharding_remove_data TYPE."
    )
    refusing: dict[tuple[str, str], list[str]] = {}
    for incarnation, answer in look.nodes.regions.items() if look.nodes is not None else ():
        for refusal in answer.refused.items():
            refusing.setdefault(refusal, []).append(names.get(incarnation, incarnation))
    for (name, why), nodes in sorted(refusing.items()):
        who = _nodes(nodes)
        yield error("D169", f"{who[:1].upper()}{who[1:]} may not host {name}: {why}.", who, fix)
    for name, why in sorted(look.refused_here.items()):
        yield error("D170", f"This project may not call {name}: {why}.", "this process", fix)


def cannot_start(look: Look) -> Iterator[Finding]:
    """Report entities whose constructor or recovery raises: of types that run without messages (the
    nodes' regions name them), and of all others (only the nodes' figures do).
    """
    if look.nodes is None:
        return
    names = _names(look.cluster)
    fix = (
        "The node's log has the traceback (sharding.region, recovery_failed; of workers sharding.worker, worker_failed); "
        "D192 to D194 name records that cannot be read. "
    )
    remembered: dict[str, list[_Failing]] = {}
    others: dict[str, list[_Failing]] = {}
    for incarnation, answer in look.nodes.regions.items():
        for region in answer.regions:
            if region.cannot_start:
                failing = _Failing(incarnation, region.cannot_start, region.failed_starts)
                remembered.setdefault(region.type, []).append(failing)
    for incarnation, stats in look.nodes.stats.items():
        for each in stats.types:
            if each.cannot_start and all(
                incarnation != failing.node for failing in remembered.get(each.type, ())
            ):
                failing = _Failing(incarnation, each.cannot_start, each.failed_starts)
                others.setdefault(each.type, []).append(failing)
    for name, failed in remembered.items():
        text, where = _failed(name, failed, names)
        yield error("D175", text, where, fix + "They are tried again every few seconds.")
    for name, failed in others.items():
        text, where = _failed(name, failed, names)
        yield warning("D176", text, where, fix + "Each is tried again with its next message.")


class _Failing(NamedTuple):
    """Entities of one type at one node."""

    node: Incarnation
    number: int
    some: list[FailedStart]


def _failed(name: str, failed: list[_Failing], names: Mapping[Incarnation, str]) -> tuple[str, str]:
    """Return what fails, and where."""
    tried = (
        f"{each.entity!r}: {each.error}, {each.attempts} times in {each.since_seconds:.0f} s"
        for at_node in failed
        for each in at_node.some
    )
    number = sum(each.number for each in failed)
    many = "1 entity" if number == 1 else f"{number} entities"
    where = _nodes([names.get(each.node, each.node) for each in failed])
    return f"{many} of {name} cannot start: {next(tried, 'not named here')}.", where


def full(look: Look) -> Iterator[Finding]:
    """Report regions near ACTIVE_ENTITY_LIMIT: a call to an entity not in memory passivates
    another.
    """
    names = _names(look.cluster)
    held: dict[str, list[tuple[int, int, str]]] = {}
    for incarnation, answer in look.nodes.regions.items() if look.nodes is not None else ():
        for region in answer.regions:
            if region.is_full:
                node = names.get(incarnation, incarnation)
                held.setdefault(region.type, []).append((sum(region.entities), region.limit, node))
    for name, at_nodes in held.items():
        entities, limit, _ = max(at_nodes)
        who = _nodes([node for *_, node in at_nodes])
        verb, most = ("holds", "") if len(at_nodes) == 1 else ("hold", "up to ")
        yield note(
            "D177", f"{who[:1].upper()}{who[1:]} {verb} {most}{entities:,} entities of {name}, of at most {limit:,}.", who,
            "Entities are passivated to make room for those that are called, and recovered when needed: the counter "
            "`evicted` counts them. Start more nodes, or raise ACTIVE_ENTITY_LIMIT if there is memory.",
        )  # fmt: skip


def kept_out_nodes(look: Look) -> Iterator[Finding]:
    """Report releases too far apart to communicate."""
    if look.cluster is None:
        return
    names = _names(look.cluster)
    for incarnation, why in kept_out(look.cluster.members).items():
        name = names.get(incarnation, incarnation)
        yield error(
            "D173", f"Node {name} is refused: {why}.", f"node {name}",
            "Only consecutive releases run together. Update the older one release by release.",
        )  # fmt: skip


def refused_here(look: Look) -> Iterator[Finding]:
    if look.refused:
        yield error(
            "D174", look.refused, "this process",
            "Install the nodes' release here, or the one before or after it. The nodes could not be asked.",
        )  # fmt: skip


def hosted(look: Look) -> Iterator[Finding]:
    """Report types without a node, and nodes without a type.

    A type that is not called may be one of former code, or of another project on this database.
    """
    cluster = look.cluster
    if cluster is None or not cluster.members:
        return
    types = {name for each in cluster.members for name in each.types}
    answers = look.nodes.regions.values() if look.nodes is not None else ()
    called = {name for each in answers for name in each.asked_in_vain} - types
    roles = {each.config.name: each.config.role for each in cluster.types}
    present = {each.incarnation for each in cluster.members}
    homeless: Counter[str] = Counter()
    for group in cluster.shards:
        if group.step != "home" or group.home not in present:
            homeless[group.type] += group.shards
    for name in sorted((roles.keys() | called) - types):
        role = f" of role {roles[name]!r}" if roles.get(name) else ""
        fix = (
            f"Start a node{role} whose project has the type: this one, or another one on this database. If the type is gone "
            f"for good in all of them: manage.py sharding_remove_data {name}; other nodes may go on meanwhile."
        )
        if name in called:
            yield error("D178", f"Commands for {name} fail: no node{role} hosts it.", f"type {name}", fix)
        else:
            before = f" {counted(homeless[name], 'shard')} of it had a home before." if homeless[name] else ""
            yield note(
                "D171", f"No node{role} hosts {name}: commands to it fail.{before}", f"type {name}", fix
            )
    without = [each.name for each in cluster.members if each.state == "up" and not each.types]
    if without:
        yield note(
            "D172", f"{counted(len(without), 'node')} up without a type to host: {', '.join(without)}.", "cluster",
            "Check their roles: they match no type, or the types were refused.",
        )  # fmt: skip


def _heard_by_coordinator(look: Look) -> list[Incarnation] | None:
    """Return the nodes registered with the coordinator; None if it is silent or there is none."""
    if look.nodes is None or look.cluster is None:
        return None
    stats = look.nodes.stats.get(look.cluster.coordinator.incarnation or "")
    return None if stats is None or stats.coordination is None else stats.coordination.heard


def _nodes(names: list[str]) -> str:
    return f"node {names[0]}" if len(names) == 1 else f"nodes {some(sorted(names))}"


def _names(cluster: ClusterSnapshot | None) -> dict[Incarnation, str]:
    return {} if cluster is None else member_names(cluster.members)
