"""Deadlocks between chains of calls, found by probes along the calls (Chandy, Misra and Haas).

    auction a ──call, in b's mailbox──> bidder b ──call, in a's mailbox──> auction a

An entity handles one command at a time, so a call that is queued behind a command ends after it,
and a command ends after the calls that it waits for. A probe begins at an entity whose command has
run for long and behind which calls are queued. It follows the calls of that command to their homes,
there those of the next entity's command, and so on. If a followed call is queued at the entity
where the probe began, the calls are a circle.

Contract: a call is refused only if the calls of its circle waited at the same time. Each call is
looked at where it was made and where it waits, and each has an identity of its own, which never
comes back. A first round finds the circle, a second one finds each of its calls again: all of them
waited between the two rounds.

One call of a circle is refused: the one queued at the entity with the greatest name. A probe ends
at a call that is queued at an entity with a greater name than its own, whose own probe finds the
circle.

Every lost probe is made good by the next one. The machine keeps nothing: the shell states where an
entity stands now, and sends the probes.
"""

from collections.abc import Collection, Sequence

import msgspec

from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import Wait, WaitProbe

LONGEST = 32
"""Most calls in a circle: longer ones end by their callers' timeouts."""
WIDEST = 16
"""Most calls of one command that are followed, the oldest first."""


class Standing(msgspec.Struct, frozen=True):
    """An entity that handles a command now."""

    type: str
    entity: str
    running: tuple[Incarnation, int]
    "The caller's process and the request of the command that is handled."
    queued: Collection[tuple[Incarnation, int]]
    "Those of the calls of entities in its mailbox."
    calls: Sequence[Wait]
    "The open calls of the command, the oldest first."


class Circle(msgspec.Struct, frozen=True):
    """Calls that wait for each other. The last one is to be refused, at its home."""

    way: Sequence[Wait]


def begin(me: Standing) -> list[WaitProbe]:
    """Return the first probes of an entity whose command has run for long."""
    if not me.queued:
        return []
    return [WaitProbe(me.type, me.entity, [call]) for call in me.calls[:WIDEST]]


def follow(me: Standing, probe: WaitProbe) -> list[WaitProbe] | Circle:
    """Take a probe further from the entity of its last call.

    Returns no probe if that call no longer waits, or if the way leads to no circle of this probe.
    """
    way, last = probe.way, probe.way[-1]
    call = last.caller, last.request
    is_queued = call in me.queued
    if not is_queued and call != me.running:
        return []
    name, origin = (me.type, me.entity), (probe.type, probe.entity)
    if name == origin:
        if not is_queued or way[0] not in me.calls:
            return []
        if not probe.known:
            return [WaitProbe(*origin, way[:1], known=way)]
        return Circle(way) if way == probe.known else []
    if (is_queued and name > origin) or len(way) >= LONGEST:
        return []
    if name in {(each.type, each.entity) for each in way[:-1]}:
        return []  # a circle in which the origin does not take part
    calls = me.calls[:WIDEST]
    if probe.known:
        calls = [each for each in me.calls if each in probe.known[len(way) : len(way) + 1]]
    return [WaitProbe(*origin, [*way, each], probe.known) for each in calls]
