"""The machines whose transitions are counted, and transitions that a sample of seeds must show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sharding_app.protocol.coordinator.handoff import ShardHandOff
from sharding_app.protocol.delivery.deliveries import Message
from sharding_app.protocol.link.sender import LinkSender
from sharding_app.protocol.liveness.node_lease import Lease
from sharding_app.protocol.liveness.shard_lease import _Lease
from sharding_app.protocol.region import Route
from sharding_app.protocol.shard import Slot
from sharding_app.runtime.journal.stuck import Stuck
from sharding_app.runtime.node.node import Node
from sharding_app.testing.simulation import moves
from sharding_app.testing.simulation.closings import MOVE
from sharding_app.testing.simulation.fault_policy import TROUBLES
from sharding_app.testing.simulation.memory_checker import TRANSITIONS as OF_MEMORY
from sharding_app.testing.simulation.message_checker import MESSAGE, OUTCOMES
from sharding_app.testing.simulation.phases.in_the_way import WAYS
from sharding_app.testing.simulation.phases.journal_down import JOURNAL
from sharding_app.testing.simulation.phases.journal_down import WAYS as ENDS_OF_A_JOURNAL
from sharding_app.testing.simulation.schedules import SCHEDULE
from sharding_app.testing.simulation.trace import Coverage

WATCHED: tuple[tuple[str, type, str], ...] = (
    ("lease", Lease, "state"),
    ("node", Node, "state"),
    ("node coordinates", Node, "coordinator"),
    ("slot", Slot, "state"),
    ("route", Route, "state"),
    ("hand-off", ShardHandOff, "phase"),
    ("shard's lease", _Lease, "state"),
    ("link asks for credit", LinkSender, "_probes"),
    ("link has begun its stream again", LinkSender, "restarts"),
    ("what is stuck is due", Stuck, "due"),
    (MESSAGE, Message, "state"),
)

EXPECTED: frozenset[tuple[str, str, str]] = frozenset(
    {
        ("lease", "new", "valid"),
        ("lease", "valid", "suspended"),
        ("lease", "suspended", "returning"),
        ("lease", "returning", "valid"),
        ("lease", "returning", "suspended"),
        ("lease", "valid", "dropped"),
        ("node", "new", "joining"),
        ("node", "joining", "up"),
        ("node", "up", "leaving"),
        ("node", "up", "ended"),
        ("node", "leaving", "ended"),
        ("node coordinates", "no", "yes"),
        ("node coordinates", "yes", "no"),
        ("slot", "LOADING", "BUSY"),
        ("slot", "BUSY", "IDLE"),
        ("slot", "IDLE", "BUSY"),
        ("slot", "BUSY", "LOADING"),
        ("route", "UNKNOWN", "OPEN"),
        ("route", "OPEN", "UNKNOWN"),
        ("route", "OPEN", "HELD"),
        ("route", "HELD", "OPEN"),
        ("route", "DRAINING", "OPEN"),
        ("hand-off", "marking", "begin"),
        ("hand-off", "begin", "stopping"),
        ("hand-off", "stopping", "moving"),
        ("link asks for credit", "no", "yes"),
        ("link has begun its stream again", "no", "yes"),
        ("link", "forgotten by its peer", "begun again"),
        ("loop", "blocked", "given up"),
        ("commit", "not confirmed", "vanished"),
        ("entity", "stored", "erased"),
        ("entity", "stored", "archived"),
        ("hook", "committed", "raised"),
        ("former home", "let go unheard", "handles"),
        ("former home", "let go unheard", "answers of the past"),
        ("own row", "alone", "committed"),
        ("own row", "with events", "committed"),
        ("entity", "stored", "snapshot"),
        *(("server", "takes what is written", trouble.state) for trouble in TROUBLES),
        *(("one entity", "is stored", way) for way in WAYS),
        ("row", "refused", "told"),
        ("what is stuck is due", "no", "yes"),
        ("what is stuck is due", "yes", "no"),
        ("shard row", "none", "home"),
        ("shard row", "home", "home"),
        ("shard row", "home", "handoff"),
        ("shard row", "handoff", "home"),
        ("shard row", "home", "stopped"),
        ("shard row", "stopped", "home"),
        ("shard's lease", "waiting", "asking"),
        ("shard's lease", "asking", "waiting"),
        ("shard's lease", "asking", "held"),
        ("shard's lease", "held", "lost"),
        ("shard's lease", "held", "releasing"),
        ("shard's lease", "lost", "releasing"),
        ("request", "waits", "goes on"),
        ("request", "waits", "gives up"),
        ("request", "waits", "is cut"),
        ("request append", "is under way", "is cut"),
        ("request append", "waits", "goes on"),
        ("request decide", "waits", "goes on"),
        ("cluster", "too small", "assembled"),
        ("entity", "runs", "quit"),
        ("entity", "runs", "rest"),
        ("entity", "runs", "terminated"),
        ("chain of calls", "closes", "refused"),
        ("crossing chains of calls", "close", "one refused"),
        ("handler", "lasts too long", "given up"),
        ("timer", "set", "rung"),
        ("remembered", "does not start", "told"),
        ("remembered", "does not start", "starts"),
        ("pipelined", "commit under way", "next command runs"),
        ("pipelined", "behind a refused row", "failed"),
        ("rebalance", "asked", "kept while mixed"),
        ("rebalance", "asked", "kept while unsettled"),
        ("rebalance", "asked", "moved"),
        ("remembered", "recalled", "elsewhere"),
        ("singleton", "runs", "handed over"),
        ("singleton", "runs", "started again"),
        ("singleton", "runs", "taken over"),
        ("singleton's proxy", "waits", "oldest dropped"),
        (MESSAGE, "QUEUED", "SENT"),
        (MESSAGE, "QUEUED", "OVER"),
        (MESSAGE, "SENT", "QUEUED"),
        (MESSAGE, "SENT", "WRITING"),
        (MESSAGE, "SENT", "OVER"),
        (MESSAGE, "WRITING", "QUEUED"),
        (MESSAGE, "WRITING", "OVER"),
        *((MESSAGE, "stored", what) for what in OUTCOMES),
        ("projection", "takes a turn", "fills"),
        ("projection", "takes a turn", "follows"),
        ("projection", "takes a turn", "waits"),
        ("projection", "runs", "has failed"),
        ("projection", "fills", "is live"),
        ("projection", "follows", "is reset"),
        ("projection", "is parked", "is skipped"),
        ("projection", "is parked", "is tried again"),
        *((JOURNAL, "works", way) for way in ENDS_OF_A_JOURNAL),
        (JOURNAL, "decided", "taken"),
        (JOURNAL, "taken", "taken"),
        (JOURNAL, "taken", "written"),
        (MOVE, "copying", "closed"),
        (MOVE, "closed", "without a home"),
        (MOVE, "without a home", "fenced"),
        (MOVE, "fenced", "opened"),
        (MOVE, "closed", "lapsed"),
        (JOURNAL, "taken", "moved"),
        *moves.TRANSITIONS,
        *OF_MEMORY,
        (SCHEDULE, "stored", "set"),
        (SCHEDULE, "due", "fired"),
        (SCHEDULE, "missed", "caught up"),
    }
)
"""The last ones are reported by the registry, the judge and the clients, in seeds of the whole
protocol.
"""


@contextmanager
def watched(coverage: Coverage) -> Iterator[None]:
    """Count the transitions of all machines while the block runs."""
    with ExitStack() as stack:
        for machine, cls, attribute in WATCHED:
            stack.enter_context(
                coverage.watching(
                    machine,
                    cls,
                    attribute,
                    presence=cls in (Node, LinkSender) and attribute != "state",
                )
            )
        yield
