"""Whom a process tells which others are silent: few, once, many names in one message.

A process that has no acknowledgement from a node makes others look at that node's lifeline. The coordinator buries it; where
the coordinator is the silent one, the oldest candidates look at its lock. More need not know: while a layer loses frames every
process suspects every other, and words about that would fill the links that are in trouble.

Contract: for each incident (from the first suspicion until the node is heard or gone) a process tells the coordinator, and
two others, once each. A coordinator that is elected meanwhile is told too. Who is suspected itself is told nothing.
"""

from collections.abc import Iterable

from sharding_app.core.ids import Incarnation
from sharding_app.core.records import Member

OTHERS = 2


class Suspicions:
    def __init__(self, me: Incarnation) -> None:
        self._me = me
        self._told: dict[Incarnation, set[Incarnation]] = {}
        "Who is suspected, and who was told of it."

    def __contains__(self, incarnation: Incarnation) -> bool:
        return incarnation in self._told

    def add(self, incarnation: Incarnation) -> bool:
        """It is silent. True: that is news."""
        if incarnation in self._told:
            return False
        self._told[incarnation] = set()
        return True

    def over(self, incarnation: Incarnation) -> None:
        """It was heard, or is gone."""
        self._told.pop(incarnation, None)

    def to_tell(
        self, coordinator: Incarnation | None, members: Iterable[Member]
    ) -> dict[Incarnation, list[Incarnation]]:
        """Return who has to be told now of whom; it counts as told."""
        wanted: dict[Incarnation, list[Incarnation]] = {}
        if not self._told:
            return wanted
        oldest = sorted(
            (each.age, each.incarnation)
            for each in members
            if each.state == "up" and each.candidate and self._may_hear(each.incarnation, coordinator)
        )
        hearers = [incarnation for _, incarnation in oldest[:OTHERS]]
        if coordinator is not None and self._may_hear(coordinator, None):
            hearers.insert(0, coordinator)
        for suspect, told in sorted(self._told.items()):
            for hearer in hearers:
                # Others stand in for a silent one as they change; of these two are enough.
                if hearer not in told and (hearer == coordinator or len(told - {coordinator}) < OTHERS):
                    told.add(hearer)
                    wanted.setdefault(hearer, []).append(suspect)
        return wanted

    def _may_hear(self, incarnation: Incarnation, but: Incarnation | None) -> bool:
        return incarnation not in self._told and incarnation not in (self._me, but)
