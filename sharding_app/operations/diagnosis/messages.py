"""Messages and timers: none is overdue for long, and none waits for an operator."""

from collections.abc import Iterator

from sharding_app.adapters.django.database import READ_SECONDS
from sharding_app.operations.console import age_text
from sharding_app.operations.diagnosis.finding import Finding, error, warning
from sharding_app.operations.diagnosis.look import Look
from sharding_app.operations.snapshot import MOST_COUNTED, UNCOUNTED_SECONDS

LONG_SECONDS = 300.0
"""An overdue message of this age is an error, unless failures explain it."""


def examine(look: Look) -> Iterator[Finding]:
    for name in look.cluster.uncounted if look.cluster is not None else ():
        there = f" of the journal {name!r}" if name else ""
        yield warning(
            "D203", f"The messages and timers{there} are not counted: that takes longer than {READ_SECONDS:g} s. It is not known "
            "whether any are overdue or parked.", "sharding_message",
            "See what the database is busy with, or which session has locked the table. Each process counts again after "
            f"{UNCOUNTED_SECONDS:g} s.",
        )  # fmt: skip
    for row in look.cluster.message_counts if look.cluster is not None else ():
        where = f"type {row.type}"
        if row.overdue:
            failing = (
                f" After a failure {_many(row.failing)} of the type {'waits' if row.failing == 1 else 'wait'} for another "
                "attempt, and later ones to the same targets wait behind."
                if row.failing
                else ""
            )
            severity = error if row.oldest_seconds >= LONG_SECONDS and not row.failing else warning
            yield severity(
                "D201", f"{_many(row.overdue)} of {row.type} should have gone out, the oldest {age_text(row.oldest_seconds)} "
                f"ago.{failing}", where,
                "See the other findings: are the shards of the type at home, do nodes host the types that it sends to, do "
                "these answer? The dashboard lists the messages (Messages › overdue), with the last failures. There they can "
                "be run at once or discarded. Nothing is lost while they wait.",
            )  # fmt: skip
        if row.parked:
            yield warning(
                "D202", f"{_many(row.parked)} of {row.type} {'is' if row.parked == 1 else 'are'} parked: no further attempt is "
                "made.", where,
                "The dashboard shows the reasons (Messages › parked). Repair the cause, then retry or discard them. A sender "
                "that names on_failure= decides by itself.",
            )  # fmt: skip


def _many(number: int) -> str:
    if number >= MOST_COUNTED:
        return f"{number:,} or more messages and timers"
    return "1 message or timer" if number == 1 else f"{number} messages and timers"
