"""Nodes: whether they live, may still send, coordinate, and hear themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sharding_app.adapters.memory.cluster_rows import ClusterRows
from sharding_app.protocol.coordinator.outbox import Outbox
from sharding_app.protocol.direct.company import Company
from sharding_app.protocol.ids import Term
from sharding_app.protocol.liveness.membership import Membership
from sharding_app.protocol.liveness.node_lease import Lease
from sharding_app.protocol.liveness.reach import Reach
from sharding_app.protocol.messages import NodeGone
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.protocol.records import Lineage, Server
from sharding_app.runtime.asking.regions import RegionClient
from sharding_app.runtime.hosting.node_host import NodeHost
from sharding_app.runtime.liveness.self_echo import Hearing
from sharding_app.runtime.liveness.watchdog import Stall
from sharding_app.runtime.node.membership import NodeMembership
from sharding_app.runtime.node.node import Node
from sharding_app.runtime.node.reach import Reaching
from tests.simulation.mistakes.mistake import Mistake, async_nothing, no, nothing, yes


def _looks_at_no_row(real: Any) -> Any:
    async def compare(
        self: NodeMembership, generation: int, settled: Server | None, lineage: Lineage
    ) -> None:
        node = self._node
        if await node.lifeline.resume(generation):
            node.links.resume()
            node.writer.resume()
            node.hosting.resume()

    return compare


def _freed_locks_mean_death(real: Any) -> Any:
    def judge(self: Membership, now: float, server: Any, members: Sequence[Any]) -> Any:
        self._ttl = 0.0
        return real(self, now, server, members)

    return judge


def _needs_a_coordinator(real: Any) -> Any:
    def may_handle(self: Node) -> bool:
        was_coordinator = self.locator.coordinator == self.incarnation
        return bool(real(self)) and (self.coordinator is not None or not was_coordinator)

    return may_handle


def _misses_no_lifeline(_: Any) -> Any:
    def lifeline_refused(self: Reaching) -> str:
        return ""

    return lifeline_refused


def _counts_without_an_answer(real: Any) -> Any:
    def ping_sent(self: Lease, session: int, now: float) -> None:
        real(self, session, now)
        if self.state == "valid":
            self._sessions[session].until = now + self._own_limit
            self.valid_until = self._fresh_until()

    return ping_sent


def _counts_from_the_answer(real: Any) -> Any:
    def ping_answered(self: Lease, session: int, sent_at: float, server: Server, now: float) -> Any:
        one = self._sessions[session]
        if one.in_flight == sent_at:
            one.in_flight = sent_at = now
        return real(self, session, sent_at, server, now)

    return ping_answered


def _stalls_at_once(real: Any) -> Any:
    def look(self: Stall, beat: float, now: float, at_most: float) -> float:
        held = float(real(self, beat, now, at_most))
        return float("inf") if held > 0.001 else held

    return look


def _tells_the_living(real: Any) -> Any:
    def tell(self: Outbox, incarnation: str, message: Any) -> None:
        if not isinstance(message, NodeGone):
            real(self, incarnation, message)

    return tell


def _starts_anew_at_each_look(real: Any) -> Any:
    def look(self: Reach, missing: Any, **more: Any) -> Any:
        self._since = None
        return real(self, missing, **more)

    return look


def _hears_the_dead(real: Any) -> Any:
    def taken(self: RegionClient, home: str, request: int) -> PendingCall | None:
        return self.pending.pop(request, None)

    return taken


def _looks_at_no_lineage(real: Any) -> Any:
    def check_term(self: ClusterRows, term: Term, _: Lineage) -> None:
        real(self, term, self.lineage)

    return check_term


def _keeps_its_row(real: Any) -> Any:
    async def leave(self: NodeMembership, deadline: float) -> None:
        """Leave in order, and leave the row behind."""
        store: Any = self._node.ports.store
        store.leave = async_nothing
        try:
            await real(self, deadline)
        finally:
            del store.leave

    return leave


NODES: dict[str, Mistake] = {
    "term_check_off": Mistake((7,), ClusterRows, "check_term", lambda _: nothing),
    "a_term_counts_in_another_lineage": Mistake((7,), ClusterRows, "check_term", _looks_at_no_lineage),
    "lease_look_off": Mistake((2,), Node, "may_handle", lambda _: yes),
    "second_look_off": Mistake((2,), Node, "may_send", lambda _: yes),
    "resume_on_greater_epoch": Mistake((1, 2, 7), NodeMembership, "compare", _looks_at_no_row),
    "dead_at_once_after_restart": Mistake((2,), Membership, "judge", _freed_locks_mean_death),
    "needs_a_coordinator": Mistake((6,), Node, "may_handle", _needs_a_coordinator),
    "silent_for_two_ttl": Mistake((13,), Membership, "_together", lambda _: no),
    "objects_outlive_their_server": Mistake((2, 3, 4, 5), NodeHost, "give_up_stored", lambda _: nothing),
    "row_stays_wrong": Mistake((10,), NodeMembership, "mend", lambda _: async_nothing),
    "waits_for_room_with_what_it_has": Mistake((13,), Reaching, "_lifeline_refused", _misses_no_lifeline),
    "lease_counts_unanswered_pings": Mistake((2,), Lease, "ping_sent", _counts_without_an_answer),
    "lease_counts_from_the_answer": Mistake((2,), Lease, "ping_answered", _counts_from_the_answer),
    "lifeline_needs_the_loop": Mistake((10,), Stall, "look", _stalls_at_once),
    "stalled_for_ever": Mistake((13,), Stall, "look", lambda _: no),
    "cut_off_stays": Mistake((13,), Reach, "look", _starts_anew_at_each_look),
    "buried_are_not_told": Mistake((2, 10), Outbox, "tell", _tells_the_living),
    "deaf_stays": Mistake((13,), Hearing, "tell", lambda _: async_nothing),
    "dead_homes_are_heard": Mistake((8, 10), RegionClient, "_taken", _hears_the_dead),
    "never_alone": Mistake((13,), Company, "is_alone", lambda _: no, direct=True),
    "leaving_nodes_keep_their_rows": Mistake((10,), NodeMembership, "leave", _keeps_its_row),
}
