"""Reports of silent processes: told to few, once, many names in one message.

A process that has no acknowledgement from a node makes others look at that node's lifeline. The
coordinator buries it; where the coordinator is the silent one, the oldest candidates look at its
lock. No more processes need to know: while a layer loses frames every process suspects every other,
and reports of that would fill the links that are in trouble.

Contract: for each incident (from the first suspicion until the node is heard or gone) a process
tells the coordinator and two others, once each. It also tells a coordinator that is elected during
the incident. A suspected process is told nothing.
"""

from collections.abc import Iterable

from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.records import Member

OTHERS = 2


class Suspicions:
    def __init__(self, me: Incarnation) -> None:
        self._me = me
        self._told: dict[Incarnation, set[Incarnation]] = {}
        "Suspected processes, and those that were told of each."

    def __contains__(self, incarnation: Incarnation) -> bool:
        return incarnation in self._told

    def add(self, incarnation: Incarnation) -> bool:
        """Suspect a silent process. True: that is news."""
        if incarnation in self._told:
            return False
        self._told[incarnation] = set()
        return True

    def over(self, incarnation: Incarnation) -> None:
        """End a suspicion: the process was heard, or is gone."""
        self._told.pop(incarnation, None)

    def to_tell(
        self, coordinator: Incarnation | None, members: Iterable[Member]
    ) -> dict[Incarnation, list[Incarnation]]:
        """Return the processes to tell now, each with its suspects; they count as told."""
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
                # Other members stand in for a silent coordinator as they change; two of these are
                # enough.
                if hearer not in told and (hearer == coordinator or len(told - {coordinator}) < OTHERS):
                    told.add(hearer)
                    wanted.setdefault(hearer, []).append(suspect)
        return wanted

    def _may_hear(self, incarnation: Incarnation, but: Incarnation | None) -> bool:
        return incarnation not in self._told and incarnation not in (self._me, but)
