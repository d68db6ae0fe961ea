"""The machines whose transitions are counted, and those that must all have happened over a sample of seeds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sharding_app.core.handoff import _HandOff
from sharding_app.core.lease import Lease
from sharding_app.core.link_sender import LinkSender
from sharding_app.core.region import Route
from sharding_app.core.shard import Slot
from sharding_app.core.shard_lease import _Lease
from sharding_app.runtime.journal_stuck import Stuck
from sharding_app.runtime.node import Node
from sharding_app.simulation.conditions import TROUBLES
from sharding_app.simulation.phases.in_the_way import WAYS
from sharding_app.simulation.trace import Coverage

WATCHED: tuple[tuple[str, type, str], ...] = (
    ("lease", Lease, "state"),
    ("node", Node, "state"),
    ("node coordinates", Node, "coordinator"),
    ("slot", Slot, "state"),
    ("route is held", Route, "held"),
    ("route has a home", Route, "home"),
    ("route waits for the former home", Route, "next_home"),
    ("hand-off", _HandOff, "phase"),
    ("shard's lease", _Lease, "state"),
    ("link asks for credit", LinkSender, "_probes"),
    ("link has begun its stream again", LinkSender, "restarts"),
    ("what is stuck is due", Stuck, "due"),
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
        ("route is held", "no", "yes"),
        ("route is held", "yes", "no"),
        ("route has a home", "no", "yes"),
        ("route has a home", "yes", "no"),
        ("route waits for the former home", "no", "yes"),
        ("route waits for the former home", "yes", "no"),
        ("hand-off", "marking", "begin"),
        ("hand-off", "begin", "stopping"),
        ("hand-off", "stopping", "moving"),
        ("link asks for credit", "no", "yes"),
        ("link has begun its stream again", "no", "yes"),
        ("commit", "not confirmed", "vanished"),
        ("entity", "stored", "erased"),
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
        ("cluster", "too small", "assembled"),
        ("entity", "runs", "quit"),
        ("entity", "runs", "rest"),
        ("entity", "runs", "terminated"),
        ("rebalance", "asked", "kept while mixed"),
        ("rebalance", "asked", "kept while unsettled"),
        ("rebalance", "asked", "moved"),
        ("remembered", "recalled", "elsewhere"),
        ("singleton", "runs", "handed over"),
        ("singleton", "runs", "started again"),
        ("singleton", "runs", "taken over"),
        ("singleton's proxy", "waits", "oldest dropped"),
    }
)
"""The last ones are told by the registry, the judge and the clients, and happen in seeds of the whole protocol only."""


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
                    presence=cls in (Route, Node, LinkSender) and attribute != "state",
                )
            )
        yield
