"""Clocks: leases depend on their rates (promise 2); wall clocks only matter to people."""

from collections.abc import Iterator

from sharding_app.operations.diagnosis.finding import Finding, error, warning
from sharding_app.operations.diagnosis.look import Look

SKEW_SECONDS = 1.0
RATE = 0.05
"""Half of the difference that leases allow."""


def examine(look: Look) -> Iterator[Finding]:
    server = next((each for each in look.clocks if each.who == "PostgreSQL"), None)
    for clock in look.clocks:
        reference, ahead, uncertain = "this machine", clock.ahead_seconds, clock.uncertain_seconds
        if server is not None and clock is not server:
            reference = "PostgreSQL's server"
            ahead -= server.ahead_seconds
            uncertain += server.uncertain_seconds
        if abs(ahead) - uncertain >= SKEW_SECONDS:
            direction = "ahead of" if ahead > 0 else "behind"
            yield warning(
                "D151", f"The clock of {clock.who} is {abs(ahead):.1f} s {direction} that of {reference}.", clock.who,
                "Run a time service (chrony, systemd-timesyncd) on every machine. The cluster does not depend on these "
                "clocks, but logs and timelines cannot be compared.",
            )  # fmt: skip
        if clock.rate is not None and abs(clock.rate - 1) - clock.rate_uncertain >= RATE:
            yield error(
                "D152", f"The clock of {clock.who} runs at {clock.rate:.2f} times the speed of this machine's.", clock.who,
                "Leases assume that clock rates differ by less than 10 %. Check that (virtual) machine's clock source "
                "before anything else.",
            )  # fmt: skip
