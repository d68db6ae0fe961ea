"""An operator's requests to the coordinator: each becomes a decision of its own, or a refusal with
the reason.

Contract: a request changes nothing that the coordinator could not have decided by itself; promises
hold as ever. A request that is granted goes to the timeline with the operator's name.
"""

from sharding_app.protocol.coordinator.handoff import HandOffs
from sharding_app.protocol.coordinator.outbox import Outbox
from sharding_app.protocol.coordinator.rebalancing import Rebalancing
from sharding_app.protocol.coordinator.tables import Tables
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import OperatorRequest, ReplyCode

COORDINATOR_ACTIONS = frozenset(("rebalance", "pause", "resume", "move"))

Outcome = tuple[ReplyCode, str]
"""The outcome for the program that asks, and the text for the operator."""


class Operator:
    def __init__(
        self,
        me: Incarnation,
        tables: Tables,
        outbox: Outbox,
        handoffs: HandOffs,
        rebalancing: Rebalancing,
    ) -> None:
        self._me = me
        self._tables = tables
        self._placement = tables.placement
        self._outbox = outbox
        self._handoffs = handoffs
        self._rebalancing = rebalancing

    def carry_out(self, request: OperatorRequest, now: float) -> Outcome:
        match request.action:
            case "rebalance":
                code, text = self._rebalance(request.type, now)
            case "pause" | "resume":
                code, text = self._pause(pause=request.action == "pause")
            case "move":
                code, text = self._move(request, now)
            case _:
                return ReplyCode.REFUSED, f"The coordinator does not know the request {request.action!r}."
        if code is ReplyCode.DONE:
            subject = f"{request.type}/{request.shard}" if request.action == "move" else self._me
            action = {
                "rebalance": "rebalancing_asked",
                "pause": "rebalancing_paused",
                "resume": "rebalancing_resumed",
            }
            self._outbox.note(action.get(request.action, "move_asked"), subject, f"by {request.by}")
        return code, text

    def _rebalance(self, type_name: str, now: float) -> Outcome:
        if not self._rebalancing.enabled:
            return ReplyCode.REFUSED, "Rebalancing is paused: resume it first."
        if self._placement.all_stops:
            return ReplyCode.REFUSED, "The cluster is about to stop: no shard is moved."
        before = len(self._handoffs.active) + len(self._handoffs.queued)
        if type_name and type_name not in self._placement.allocated:
            return ReplyCode.REFUSED, f"No shard of {type_name!r} has a home: there is nothing to move."
        self._rebalancing.begin(now, [type_name] if type_name else None)
        moving = len(self._handoffs.active) + len(self._handoffs.queued) - before
        if moving:
            return ReplyCode.DONE, f"{moving} shard{'s' if moving > 1 else ''} will move in the first round."
        members = self._tables.members.values()
        if self._placement.suspect or any(each.state != "up" or each.deaf for each in members):
            return ReplyCode.DONE, "Nothing moves: a node is joining, leaving or suspect."
        return (
            ReplyCode.DONE,
            "Nothing has to move: the shards are balanced, or the nodes run different versions.",
        )

    def _pause(self, *, pause: bool) -> Outcome:
        if self._rebalancing.enabled is not pause:
            return (
                ReplyCode.REFUSED,
                "Rebalancing is already paused." if pause else "Rebalancing is not paused.",
            )
        self._rebalancing.enabled = not pause
        if pause:
            return (
                ReplyCode.DONE,
                "Rebalancing is paused until it is resumed, or another coordinator is elected.",
            )
        return ReplyCode.DONE, "Rebalancing is resumed."

    def _move(self, request: OperatorRequest, now: float) -> Outcome:
        key = request.type, request.shard
        row = self._placement.rows.get(key)
        if row is None or row.home is None:
            return ReplyCode.REFUSED, "The shard has no home yet: it gets one with its first message."
        if request.target not in self._placement.hosts_of(request.type):
            return (
                ReplyCode.REFUSED,
                "That node cannot take shards of this type now: it is gone, leaving, suspect, or does not host it.",
            )
        if row.home == request.target:
            return ReplyCode.REFUSED, "The shard is already there."
        if key in self._placement.closed:
            return ReplyCode.REFUSED, "The shard moves to another journal: it gets a home again after that."
        moving = key in self._handoffs.active or key in self._handoffs.queued
        if moving or key in self._tables.starting or key in self._tables.writing:
            return ReplyCode.REFUSED, "The shard is already moving."
        self._handoffs.begin([key], now, request.target)
        return (
            ReplyCode.DONE,
            "The shard moves. Its entities stop, and start at the new home with their next messages.",
        )
