"""How processes reach each other: the channel layer carries frames instead of a direct connection,
or it is away, or nothing can.
"""

from collections.abc import Iterator

from sharding_app.operations.console import counted, some
from sharding_app.operations.diagnosis.finding import Finding, warning
from sharding_app.operations.diagnosis.look import Look
from sharding_app.protocol.liveness.membership import member_names

AWAY_SECONDS = 5
"""A layer that is away for less is restarted, or a node has just begun."""


def by_layer(look: Look) -> Iterator[Finding]:
    """Report nodes that reach peers over the channel layer because no direct connection is made."""
    if look.nodes is None or look.cluster is None:
        return
    names = member_names(look.cluster.members)
    for incarnation, answer in look.nodes.regions.items():
        if answer.by_layer:
            node = names.get(incarnation, incarnation)
            yield warning(
                "D147", f"Node {node} reaches {counted(answer.by_layer, 'peer')} over the channel layer: no "
                "direct connection can be made.", f"node {node}",
                "Its log says why (sharding.transport, transport.by_layer). Between machines, set SHARDING['LINK_ADDRESS'].",
            )  # fmt: skip


def layer_away(look: Look) -> Iterator[Finding]:
    """Report a channel layer that is only the second way, and is away.

    Where it is the only way no node can be asked: `settings.unreachable` and the deaf nodes say so.
    """
    here = look.layer.trouble if look.layer is not None else ""
    names = member_names(look.cluster.members) if look.cluster is not None else {}
    regions = look.nodes.regions if look.nodes is not None else {}
    away = sorted(
        names.get(incarnation, incarnation)
        for incarnation, answer in regions.items()
        if answer.layer_away_seconds >= AWAY_SECONDS
    )
    if here or away:
        who = ", ".join([*([f"this process ({here})"] if here else []), *([some(away)] if away else [])])
        yield warning(
            "D149", f"The channel layer carries no messages for {who}. Direct links go on.", "channel layer",
            "Start Redis, or correct CHANNEL_LAYERS. Until then processes without a direct way to each other are apart. If "
            'none needs the layer, set SHARDING["LINKS"] to "direct".',
        )  # fmt: skip


def out_of_reach(look: Look) -> Iterator[Finding]:
    """Report nodes that listen only on their own machine, while others run on other machines."""
    if look.cluster is None or len({each.host for each in look.cluster.members}) < 2:
        return
    for member in look.cluster.members:
        if member.addresses and all(each.startswith("unix:") for each in member.addresses):
            yield warning(
                "D148", f"Node {member.name} takes connections from its own machine only, and there are nodes on others.",
                f"node {member.name}", "Set SHARDING['LINK_ADDRESS'] there to the address that the others see, and KEYS.",
            )  # fmt: skip
