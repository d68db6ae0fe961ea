"""Journals: can what is stored be read by the code here. A sample tells, since histories are read whole or not at all."""

from collections.abc import Iterator

from sharding_app.doctor.finding import Finding, error, note, warning
from sharding_app.doctor.look import JournalLook, Look, Unreadable
from sharding_app.management.console import counted

NAMED = 5
"""So many records of one reason are named."""


def examine(look: Look) -> Iterator[Finding]:
    for journal in look.journals:
        where = f"type {journal.type}"
        if not journal.installed:
            if journal.looked_at or journal.remembered:
                yield note(
                    "D191", f"The code of {journal.type} is not installed here, and the cluster has data of it.", where,
                    "It may belong to another project on this database: then all is well. If it is gone for good in all of them, "
                    f"its data can be removed: manage.py sharding_remove_journal {journal.type}",
                )  # fmt: skip
            continue
        yield from _unreadable(journal)
        for entity, seq in journal.gaps[:NAMED]:
            yield error(
                "D193", f"The history of {journal.type} {entity!r} has no event {seq}.", where,
                "Somebody has deleted rows of sharding_event. Restore them from a backup: what follows the gap cannot be "
                "trusted.",
            )  # fmt: skip
        for entity, events in journal.long[:NAMED]:
            yield warning(
                "D198", f"{journal.type} {entity!r} has {events:,} events after its last snapshot.", where,
                "Each of its recoveries reads them all, in some seconds for a million, and its callers wait. Give the type "
                "`snapshot_every`. Beyond MAX_RECOVERY_EVENTS and MAX_HISTORY_BYTES it is not recovered any more.",
            )  # fmt: skip
        yield from _remembered(journal)


def _unreadable(journal: JournalLook) -> Iterator[Finding]:
    by_reason: dict[tuple[str, str], list[Unreadable]] = {}
    for each in journal.unreadable:
        by_reason.setdefault((each.what, each.why), []).append(each)
    for (what, why), records in by_reason.items():
        names = ", ".join(f"{each.entity!r} #{each.seq}" for each in records[:NAMED])
        more = f" and {len(records) - NAMED} more of the sample" if len(records) > NAMED else ""
        severity = error if what.startswith("event") else warning
        yield severity(
            "D192" if what.startswith("event") else "D194",
            f"{'An' if what.startswith('event') else 'A'} {what} of {journal.type} cannot be read ({names}{more}): {why}.",
            f"type {journal.type}",
            "Such entities answer every command with an error, and change nothing. Restore the class or the name, add "
            "@upcasts for an older version, or list the name in ignore_events; then restart the nodes."
            if what.startswith("event")
            else "Such entities are rebuilt from an older snapshot or from their events, as far as those are kept. Give "
            "new attributes a default, or read the old form in restore().",
        )


def _remembered(journal: JournalLook) -> Iterator[Finding]:
    where = f"type {journal.type}"
    if journal.remembered and not journal.remembers:
        yield note(
            "D195", f"Ids of {journal.type} are remembered, and the type does not remember any more.", where,
            f"They do no harm. With all nodes stopped: manage.py sharding_remove_data {journal.type}",
        )  # fmt: skip
    if journal.unreadable_ids:
        entity, why = journal.unreadable_ids[0]
        count = counted(len(journal.unreadable_ids), "remembered id")
        yield error(
            "D196", f"{count} of {journal.type} in the sample lead to no shard, such as {entity!r}: {why}.", where,
            "They are not started again. Mend the extractor, or with all nodes stopped: "
            f"manage.py sharding_remove_data {journal.type}",
        )  # fmt: skip
    if journal.moved_ids:
        yield note(
            "D197", f"{counted(journal.moved_ids, 'remembered id')} of {journal.type} in the sample belong to another shard "
            "now: the extractor has changed.", where,
            "Nothing: they move when their shard starts the next time.",
        )  # fmt: skip
