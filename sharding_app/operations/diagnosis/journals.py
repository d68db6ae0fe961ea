"""Journals: whether this code can read the records. Histories are read whole, so a sample
suffices.
"""

from collections.abc import Iterator

from sharding_app.adapters.django.database import READ_SECONDS
from sharding_app.operations.console import counted, some
from sharding_app.operations.diagnosis.finding import Finding, error, note, warning
from sharding_app.operations.diagnosis.look import JournalLook, Look, Unreadable

NAMED = 5
"""Maximum number of records named for one reason."""


def examine(look: Look) -> Iterator[Finding]:
    for name in look.database.unfinished_imports if look.database is not None else ():
        yield error(
            "D190", f"An import of {name} has begun and has not ended: entities may have a part of their history.",
            f"type {name}",
            "If none is running: stop the nodes that host the type, and run manage.py sharding_import again with the same file. "
            "An entity that has stored events meanwhile has to be erased before (sharding_erase).",
        )  # fmt: skip
    if unread := [each.type for each in look.journals if each.is_unread]:
        yield warning(
            "D189",
            f"The journal of {some(unread)} was not sampled: PostgreSQL did not finish a read of it in {READ_SECONDS:g} s.",
            "PostgreSQL", "D134 and D138 name sessions that hold a table. If there is none, look when the server has less to do.",
        )  # fmt: skip
    for journal in look.journals:
        if journal.is_unread:
            continue
        where = f"type {journal.type}"
        if not journal.installed:
            if journal.looked_at or journal.remembered:
                yield note(
                    "D191", f"The cluster has data of {journal.type}, but its code is not installed here.", where,
                    "Nothing, if another project on this database has the type. If no project has it any more, remove its "
                    f"data: manage.py sharding_remove_journal {journal.type}",
                )  # fmt: skip
            continue
        yield from _unreadable(journal)
        for entity, seq in journal.gaps[:NAMED]:
            yield error(
                "D193", f"The history of {journal.type} {entity!r} has no event {seq}.", where,
                "Rows of sharding_event were deleted. Restore them from a backup: events after the gap cannot be "
                "trusted.",
            )  # fmt: skip
        for entity, events in journal.long[:NAMED]:
            yield warning(
                "D198", f"{journal.type} {entity!r} has {events:,} events after its last snapshot.", where,
                "Each recovery reads all of them, some seconds per million, while its callers wait. Set `snapshot_every` "
                "for the type. Beyond MAX_RECOVERY_EVENTS or MAX_HISTORY_BYTES the entity is not recovered.",
            )  # fmt: skip
        if journal.kept:
            yield warning(
                "D199", f"Events of {journal.type} should have been deleted two days ago, such as those of "
                f"{journal.kept[0]!r}.", where,
                "A projection that does not get on holds events: manage.py sharding_projection. Else the nodes that host "
                "the type did not run, or their rounds take longer: see `retention_rounds` in their metrics.",
            )  # fmt: skip
        yield from _remembered(journal)


def _unreadable(journal: JournalLook) -> Iterator[Finding]:
    by_reason: dict[tuple[str, str, str], list[Unreadable]] = {}
    for each in journal.unreadable:
        by_reason.setdefault((each.kind, each.what, each.why), []).append(each)
    for (kind, what, why), records in by_reason.items():
        names = ", ".join(f"{each.entity!r} #{each.seq}" for each in records[:NAMED])
        more = f" and {len(records) - NAMED} more of the sample" if len(records) > NAMED else ""
        severity = error if kind == "event" else warning
        yield severity(
            "D192" if kind == "event" else "D194",
            f"{'An' if kind == 'event' else 'A'} {what} of {journal.type} cannot be read ({names}{more}): {why}.",
            f"type {journal.type}",
            "These entities answer every command with an error and store nothing. Restore the class or the name, add "
            "@upcasts for an older version, or list the name in ignore_events. Then restart the nodes."
            if kind == "event"
            else "These entities are rebuilt from an older snapshot or from their events, if those are kept. Give "
            "new attributes a default, or read the old form in restore().",
        )


def _remembered(journal: JournalLook) -> Iterator[Finding]:
    where = f"type {journal.type}"
    if journal.remembered and not journal.remembers:
        yield note(
            "D195", f"There are remembered ids of {journal.type}, but the type no longer remembers entities.", where,
            f"They are harmless. To remove them, stop all nodes and run: manage.py sharding_remove_data {journal.type}",
        )  # fmt: skip
    if journal.unreadable_ids:
        entity, why = journal.unreadable_ids[0]
        count = counted(len(journal.unreadable_ids), "remembered id")
        yield error(
            "D196", f"{count} of {journal.type} in the sample have no shard, such as {entity!r}: {why}.", where,
            "These entities are not started again. Correct the extractor, or stop all nodes and run: "
            f"manage.py sharding_remove_data {journal.type}",
        )  # fmt: skip
    if journal.moved_ids:
        yield note(
            "D197", f"{counted(journal.moved_ids, 'remembered id')} of {journal.type} in the sample now belong to another "
            "shard: the extractor has changed.", where,
            "Nothing. They move when their shard next starts.",
        )  # fmt: skip
