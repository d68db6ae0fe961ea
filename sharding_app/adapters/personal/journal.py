"""The journal with personal data sealed: what goes in is sealed, what comes out is opened.

It stands in front of a journal, and changes documents alone. A document without personal data costs
a look for a mark in it. All else is the journal's own.

Contract: each call reads the keys that it needs, and keeps none. So a value is never sealed with a
key that was gone before the call began. One that is sealed while its subject is being erased was
stored before the erasure: it reads as erased. Where the keys are in another database, a synchronous
standby of that one has a key before anything that it seals is stored.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar, cast

import msgspec

from sharding_app.adapters.personal.sealing import (
    MESSAGE_PLACE,
    SECURE,
    Document,
    NoKeys,
    Secured,
    Steps,
    SubjectsErased,
    event_place,
    opened,
    reply_place,
    sealed,
    state_place,
)
from sharding_app.adapters.personal.vault import Vault
from sharding_app.ports.deliveries import Claim, MessageChanges, MessageRow, Page, Taking, TimerKey
from sharding_app.ports.journal import (
    EVERYTHING,
    Archival,
    Bounds,
    Erasure,
    EventRow,
    History,
    Journal,
    JournalUnavailable,
    Outcome,
    Reading,
    RowRefused,
    Snapshot,
    StoredEvent,
    SubjectGone,
    Wanted,
)
from sharding_app.ports.subjects import SubjectRows
from sharding_app.protocol.ids import Epoch, ShardId
from sharding_app.protocol.personal import in_any_json, in_any_packed

T = TypeVar("T")

ERASED_REFUSED = (
    "it has personal data of a subject that was erased: erase_subject() is for good. A person who comes back needs another"
    " id"
)


class _Inner(Journal, SubjectRows, Protocol):
    pass


class SealedJournal:
    """`ports.journal.Journal`, made of one that knows nothing of personal data."""

    def __init__(self, journal: _Inner, vault: Vault | None, subjects: SubjectRows | None = None) -> None:
        """`subjects`: the journal whose database has the persons' keys, if it is another one."""
        self._journal = journal
        self._vault = vault
        self._subjects = subjects or journal
        self._secured = None if subjects is None else Secured()
        self._saving = asyncio.Lock()
        "Held while snapshots are sealed and written."

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    # -- Into the database -------------------------------------------------------------------------

    async def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
    ) -> datetime | None:
        rows, changes = await self.sealed(rows, changes)
        return await self._journal.append(rows, changes, on=on)

    async def settle(self, rows: Sequence[EventRow], *, on: int = 0) -> bool:
        # A value that is sealed again is another one.
        known = [row._replace(payload=b"") if in_any_json([row.payload]) else row for row in rows]
        return await self._journal.settle(known, on=on)

    async def sealed(
        self, rows: Sequence[EventRow], changes: MessageChanges | None
    ) -> tuple[Sequence[EventRow], MessageChanges | None]:
        """Return what an append may store. Raises SubjectGone, RowRefused, JournalUnavailable."""
        sends = () if changes is None else changes.sends
        if not (
            in_any_json([row.payload for row in rows])
            or in_any_packed([row.reply for row in rows if row.reply is not None])
            or in_any_packed([row.args for row in sends])
        ):
            return rows, changes
        documents = [Document(row.payload, event_place(row.type_id, row.entity, row.seq)) for row in rows]
        replies = [row for row in rows if row.reply is not None]
        documents += [
            Document(row.reply or b"", reply_place(row.type_id, row.entity, row.seq), is_packed=True)
            for row in replies
        ]
        documents += [_of_message(row.args) for row in sends]
        texts = iter(await self._seal(documents, rows, sends))
        rows = [row._replace(payload=next(texts)) for row in rows]
        rows = [row if row.reply is None else row._replace(reply=next(texts)) for row in rows]
        if changes is not None:
            changes = changes._replace(sends=[row._replace(args=next(texts)) for row in sends])
        return rows, changes

    async def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        if not in_any_json(each.state for each in snapshots):
            await self._journal.save_snapshots(snapshots)
            return
        async with self._saving:
            found = await self._seal(
                [
                    Document(each.state, state_place(each.type_id, each.entity, each.seq), is_state=True)
                    for each in snapshots
                ]
            )
            await self._journal.save_snapshots(
                [
                    msgspec.structs.replace(each, state=state)
                    for each, state in zip(snapshots, found, strict=True)
                ]
            )

    async def erase(
        self,
        type_id: int,
        shard: ShardId,
        epoch: Epoch,
        entity: str,
        *,
        at_most: int,
        before: Erasure,
        by: str,
    ) -> Erasure:
        await self._saved()
        return await self._journal.erase(type_id, shard, epoch, entity, at_most=at_most, before=before, by=by)

    async def archive(
        self, type_id: int, shard: ShardId, epoch: Epoch, entity: str, *, mark: str
    ) -> Archival:
        await self._saved()
        return await self._journal.archive(type_id, shard, epoch, entity, mark=mark)

    async def _saved(self) -> None:
        """Wait for snapshots that are being sealed. The journal keeps the order of its calls, and
        would get such a snapshot behind the end of its entity, which would begin with it again.
        """
        async with self._saving:
            pass

    async def stage(
        self,
        sends: Sequence[MessageRow],
        cancels: Sequence[TimerKey] = (),
        takes: Sequence[Taking] = (),
        *,
        claim: Claim | None = None,
    ) -> datetime:
        _, changes = await self.sealed((), MessageChanges(sends))
        sealed = sends if changes is None else changes.sends
        return await self._journal.stage(sealed, cancels, takes, claim=claim)

    async def discard(self, takes: Sequence[Taking]) -> list[str]:
        replies = [each.reply for each in takes if each.reply is not None]
        if in_any_packed(row.args for row in replies):
            args = iter(await self._seal([_of_message(row.args) for row in replies], sends=replies))
            takes = [
                each
                if each.reply is None
                else each._replace(reply=each.reply._replace(args=next(args)))
                for each in takes
            ]  # fmt: skip
        return await self._journal.discard(takes)

    async def turn(self, message: str, new: str, command: str, args: bytes, claim: Claim) -> bool:
        # It was sealed before, and the sender has to hear of the failure.
        if in_any_packed((args,)):
            (args,) = await self._seal([Document(args, MESSAGE_PLACE, is_packed=True, is_state=True)])
        return await self._journal.turn(message, new, command, args, claim)

    # -- Out of the database -----------------------------------------------------------------------

    async def read(
        self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING
    ) -> dict[str, History]:
        found = await self._journal.read(type_id, entities, bounds)
        marked = [
            (entity, history)
            for entity, history in found.items()
            if in_any_json(event.payload for event in history.events)
            or (history.snapshot and in_any_json((history.snapshot.state,)))
        ]
        if not marked:
            return found
        states = [(entity, history.snapshot) for entity, history in marked if history.snapshot]
        documents = [Document(each.state, state_place(type_id, entity, each.seq)) for entity, each in states]
        documents += [
            Document(event.payload, event_place(type_id, entity, event.seq))
            for entity, history in marked
            for event in history.events
        ]
        texts = await self._opened(documents)
        for entity, snapshot in states:
            found[entity].snapshot = msgspec.structs.replace(snapshot, state=next(texts))
        for _, history in marked:
            history.events = [event._replace(payload=next(texts)) for event in history.events]
        return found

    async def read_from(self, type_id: int, entity: str, after: int, bounds: Bounds = EVERYTHING) -> History:
        found = await self._journal.read_from(type_id, entity, after, bounds)
        if in_any_json(each.payload for each in found.events):
            texts = await self._opened(
                [Document(each.payload, event_place(type_id, entity, each.seq)) for each in found.events]
            )
            found.events = [each._replace(payload=next(texts)) for each in found.events]
        return found

    async def read_snapshot(self, type_id: int, entity: str, before: int) -> Snapshot | None:
        found = await self._journal.read_snapshot(type_id, entity, before)
        if found is None or not in_any_json((found.state,)):
            return found
        texts = await self._opened([Document(found.state, state_place(type_id, entity, found.seq))])
        return msgspec.structs.replace(found, state=next(texts))

    async def read_last(
        self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING
    ) -> dict[str, StoredEvent | None]:
        found = await self._journal.read_last(type_id, entities, bounds)
        there = [(entity, event) for entity, event in found.items() if event is not None]
        if in_any_json(event.payload for _, event in there):
            texts = await self._opened(
                [Document(event.payload, event_place(type_id, entity, event.seq)) for entity, event in there]
            )
            for entity, event in there:
                found[entity] = event._replace(payload=next(texts))
        return found

    async def follow(self, wanted: Sequence[Wanted], page_bytes: int) -> list[Reading]:
        found = await self._journal.follow(wanted, page_bytes)
        if not in_any_json(event.payload for reading in found for event in reading.events):
            return found
        texts = await self._opened(
            [
                Document(event.payload, event_place(asked.type_id, asked.entity, event.seq))
                for asked, reading in zip(wanted, found, strict=True)
                for event in reading.events
            ]
        )
        return [
            reading._replace(
                events=[msgspec.structs.replace(event, payload=next(texts)) for event in reading.events]
            )
            for reading in found
        ]

    async def outcome(self, type_id: int, entity: str, command_id: str, age_ms: int) -> Outcome | None:
        found = await self._journal.outcome(type_id, entity, command_id, age_ms)
        if found is None or found.reply is None or not in_any_packed((found.reply,)):
            return found
        place = reply_place(type_id, entity, found.seq)
        texts = await self._opened([Document(found.reply, place, is_packed=True)])
        return msgspec.structs.replace(found, reply=next(texts))

    async def due(
        self,
        shards: Sequence[tuple[int, ShardId]],
        horizon_seconds: float,
        limit: int,
        held: Collection[str] = (),
        alone: Collection[str] = (),
    ) -> Page:
        page = await self._journal.due(shards, horizon_seconds, limit, held, alone)
        if not in_any_packed(each.args for each in page.messages):
            return page
        texts = await self._opened([_of_message(each.args) for each in page.messages])
        return page._replace(messages=[each._replace(args=next(texts)) for each in page.messages])

    # -- Both --------------------------------------------------------------------------------------

    async def _opened(self, documents: Sequence[Document]) -> Iterator[bytes]:
        """Return the opened documents in order."""
        return iter(await self._run(opened(self._vault, documents)))

    async def _seal(
        self,
        documents: Sequence[Document],
        rows: Sequence[EventRow] = (),
        sends: Sequence[MessageRow] = (),
    ) -> list[bytes]:
        """Return the sealed documents: those of rows, of their replies, of messages."""
        lineage = self._journal.lineage
        try:
            found = await self._run(sealed(self._vault, documents, self._secured))
        except SubjectsErased as erased:
            raise SubjectGone(ERASED_REFUSED, _index(erased.documents[0], rows, sends)) from erased
        except JournalUnavailable as error:
            if isinstance(error.__cause__, NoKeys):
                raise RowRefused(str(error.__cause__)) from error
            raise
        if self._journal.lineage != lineage:
            # The caller has asked for a write behind events that the server may lack now.
            raise JournalUnavailable("the database has gone on elsewhere meanwhile")
        return found

    async def _run(self, steps: Steps[T]) -> T:
        answer: list[tuple[Any, ...]] | None = None
        while True:
            try:
                ask = next(steps) if answer is None else steps.send(answer)
            except StopIteration as end:
                return cast(T, end.value)
            except NoKeys as error:
                raise JournalUnavailable(str(error)) from error
            if ask is SECURE:
                await self._subjects.secure()
                answer = []
            else:
                answer = await self._subjects.subject_rows(ask.query, ask.params)


class SealedTogether:
    """`runtime.base.interfaces.Together` in front of another one: what it appends is sealed."""

    def __init__(self, together: Any, journal: SealedJournal) -> None:
        self._together = together
        self._journal = journal

    async def __call__(
        self,
        rows: Sequence[EventRow],
        functions: Sequence[Callable[[], object]],
        changes: MessageChanges | None = None,
    ) -> datetime | None:
        rows, changes = await self._journal.sealed(rows, changes)
        at: datetime | None = await self._together(rows, functions, changes)
        return at

    async def held_up(self, type_id: int, entity: str) -> str:
        answer: str = await self._together.held_up(type_id, entity)
        return answer

    async def close(self) -> None:
        await self._together.close()


def _of_message(args: bytes) -> Document:
    return Document(args, MESSAGE_PLACE, is_packed=True)


def _index(document: int, rows: Sequence[EventRow], sends: Sequence[MessageRow]) -> int | None:
    """Return the row of an append to which a document belongs: itself, or the row that it is stored
    with.
    """
    if document < len(rows):
        return document
    replied = [number for number, row in enumerate(rows) if row.reply is not None]
    if document - len(rows) < len(replied):
        return replied[document - len(rows)]
    message = sends[document - len(rows) - len(replied)]
    owner = message.type_id, message.entity, message.seq
    return next((n for n, row in enumerate(rows) if (row.type_id, row.entity, row.seq) == owner), None)
