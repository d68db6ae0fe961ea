"""Wire versions: which releases understand each other, and which processes have to stay out.

Every frame states its version. A process reads a range of versions and writes one. Two processes
understand each other if each reads the version that the other writes. Releases N-1 and N always do:
N first learns to read a new version, and only N+1 writes it. A process of a more distant release is
refused before it hosts anything: a node stays `joining` until the members that it does not
understand are gone, a proxy is not connected.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from sharding_app.protocol.codec import WIRE_MIN, WIRE_WRITTEN
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import WIRE_VERSION
from sharding_app.protocol.records import Member


class Wire(NamedTuple):
    lowest: int
    highest: int
    written: int

    def reads(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def understands(self, other: "Wire") -> bool:
        """Tell whether each reads the version that the other writes."""
        return self.reads(other.written) and other.reads(self.written)

    def __str__(self) -> str:
        reads = f"{self.lowest} to {self.highest}" if self.lowest != self.highest else str(self.lowest)
        return f"writes wire version {self.written} and reads {reads}"


WIRE = Wire(WIRE_MIN, WIRE_VERSION, WIRE_WRITTEN)
"""The wire of this release."""


def strangers(wire: Wire, members: Iterable[Member]) -> str:
    """Name a living member that a process of this wire does not understand; empty: none."""
    for each in members:
        if each.locks and each.state != "joining" and not wire.understands(Wire(*each.wire)):
            return f"it {wire}, node {each.name} {Wire(*each.wire)}: their releases are too far apart"
    return ""


def kept_out(members: Iterable[Member]) -> dict[Incarnation, str]:
    """Return joining members that do not understand one that was there before, and why.

    They host nothing.
    """
    known = list(members)
    if len({each.wire for each in known}) == 1:
        return {}
    found = {}
    for each in known:
        if each.state == "joining":
            # Of two that join at the same time the older one counts.
            before = [
                other if other.state != "joining" or other.age > each.age else _as_up(other)
                for other in known
                if other.incarnation != each.incarnation
            ]
            if why := strangers(Wire(*each.wire), before):
                found[each.incarnation] = why
    return found


def _as_up(member: Member) -> Member:
    return msgspec.structs.replace(member, state="up")
