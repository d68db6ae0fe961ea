"""Requests that overlap on the server: the rows that they hold, for how long, and cut requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sharding_app.adapters.memory.cluster_writes import ClusterWrites
from sharding_app.adapters.memory.journal_writes import Claim, JournalWrites
from sharding_app.adapters.memory.server import Transaction
from sharding_app.adapters.memory.sessions import ConnectionLost
from sharding_app.adapters.memory.steps import Pause, Steps
from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import EventRow
from sharding_app.protocol.ids import Term
from tests.simulation.mistakes.mistake import Mistake


def _waits_and_lets_go(real: Any) -> Any:
    def fence(self: JournalWrites, claims: Iterable[Claim]) -> Steps[None]:
        yield from real(self, claims)
        session = self._server.serving
        if session is not None and session.transaction is not None:
            self._server.locks.release(session.transaction)

    return fence


def _looks_at_the_term_alone(real: Any) -> Any:
    def guard(self: ClusterWrites, term: Term) -> Steps[None]:
        yield from ()
        self._rows.check_term(term, self._server.identity.lineage)

    return guard


def _keeps_half(real: Any) -> Any:
    def append(
        self: JournalWrites, rows: Sequence[EventRow], changes: MessageChanges | None = None
    ) -> Steps[None]:
        steps, half, at = real(self, rows, changes), len(rows) // 2, self._server.now()
        store = self._rows.store
        for step in steps:
            if step is Pause.WORK and half:
                store(rows[:half], at)
            if step is Pause.COMMIT:
                yield step
                store(rows[half:], at)
                return
            yield step

    return append


def _leaves_its_locks(real: Any) -> Any:
    def abort(self: Transaction) -> None:
        if not self.over:
            self.over = True
            self.session.transaction = None
            self._told(ConnectionLost("the server has ended the session"), True)

    return abort


OVERLAPPING: dict[str, Mistake] = {
    "fence_is_not_held": Mistake((1,), JournalWrites, "fence", _waits_and_lets_go),
    "term_is_not_held": Mistake((7,), ClusterWrites, "guard", _looks_at_the_term_alone),
    "half_a_copy_stays": Mistake((1, 3, 4, 5, 8), JournalWrites, "append", _keeps_half),
    "ended_sessions_keep_their_rows": Mistake((8, 10), Transaction, "abort", _leaves_its_locks),
}
