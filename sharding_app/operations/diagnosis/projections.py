"""Projections: each comes near to what is committed, and nothing of it waits for an operator."""

from collections.abc import Iterator

from sharding_app.operations.console import age_text
from sharding_app.operations.diagnosis.finding import Finding, error, warning
from sharding_app.operations.diagnosis.look import Look
from sharding_app.operations.projections import LATE_SECONDS
from sharding_app.operations.snapshot import CHANGES_COUNTED

VERY_LATE_SECONDS = 300.0


def examine(look: Look) -> Iterator[Finding]:
    for each in look.projections:
        title, where = f"{each.name} {each.version}", f"projection {each.name}:{each.version}"
        if each.parked:
            yield warning(
                "D211", f"{_many(each.parked)} parked in {title}: an event has failed, and later ones wait behind it.", where,
                f"manage.py sharding_projection {each.name}:{each.version} shows the errors. Mend the handler and --retry, or "
                "--skip the event.",
            )  # fmt: skip
        for journal, trouble in each.journals_away.items():
            yield warning(
                "D215", f"The journal {journal!r} cannot be reached from here, so it is not known what is behind in {title}: "
                f"{trouble}.", where,
                "Workers that do not reach it either stop in this journal alone, and go on when it is back.",
            )  # fmt: skip
        if not each.status.is_of_this_server:
            yield error(
                "D213", f"The positions of {title} are of another server, so it does not go on.", where,
                "After a restored dump fill it anew with --reset. After pg_upgrade, which keeps the numbers of transactions, go "
                "on with --accept-server.",
            )  # fmt: skip
        elif not each.declared:
            yield warning(
                "D214", f"The cluster has {title}, but its class is not installed here.", where,
                "Nothing, if another project on this database has it. If no project has it any more, its position holds back "
                f"the cleaning of changes: manage.py sharding_projection {each.name}:{each.version} --remove",
            )  # fmt: skip
        elif not each.status.paused and not each.filling and each.behind_seconds > LATE_SECONDS:
            make = error if each.behind_seconds > VERY_LATE_SECONDS else warning
            yield make(
                "D212", f"{title} is behind by {each.behind_events} {'or more ' if each.behind_more else ''}events, the oldest {age_text(each.behind_seconds)} old.", where,
                "A node of its role has to run with its code. If one does, its handlers are slower than the events come: use "
                "@on_batch, or more parts.",
            )  # fmt: skip


def _many(parked: int) -> str:
    if parked >= CHANGES_COUNTED:
        return f"{parked} or more entities are"
    return "1 entity is" if parked == 1 else f"{parked} entities are"
