"""All that is stored about a person, readable: the answer to an access request.

Contract: the timeline has the line that says who asked before the first value is read. No other
person's value is opened. A row that is stored while the command reads may be in the answer or not.
After each page of rows the person's key is looked for again, so that none of it is opened once the
person was erased.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import TypeVar

import msgspec

from sharding_app.adapters.personal.revealing import Revealing
from sharding_app.adapters.personal.sealing import (
    MESSAGE_PLACE,
    NO_KEYS,
    Document,
    NoKeys,
    SubjectKey,
    answered,
    event_place,
    keys_of,
    reply_place,
    state_place,
)
from sharding_app.adapters.personal.vault import Vault
from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.deletion import ServerError, UnknownTypes
from sharding_app.adapters.postgres.further_journals import JournalDown, refuse_elsewhere
from sharding_app.adapters.postgres.joined_journals import Journals
from sharding_app.adapters.postgres.subjects import Subjects
from sharding_app.adapters.postgres.transfer import KnownType, StoredRow, StoredSnapshot, Transfer
from sharding_app.entities import identifiers
from sharding_app.operations.erasing import Progress
from sharding_app.operations.journal_file import raw
from sharding_app.operations.subjects import own_types, types_with_data
from sharding_app.settings.load import get_settings
from sharding_app.wiring import further_ways, personal_vault

T = TypeVar("T")

PAGE_ROWS = 500
PAGE_MESSAGES = 500
TOLD_ROWS = 5000


class PersonLine(msgspec.Struct, tag_field="row", tag="person", frozen=True):
    """The first line."""

    subject: str
    cluster: str


class EventLine(msgspec.Struct, tag_field="row", tag="event", frozen=True, omit_defaults=True):
    type: str
    entity: str
    seq: int
    at: str
    name: str
    payload: msgspec.Raw
    command: str | None = None
    reply: msgspec.Raw | None = None


class SnapshotLine(msgspec.Struct, tag_field="row", tag="snapshot", frozen=True):
    type: str
    entity: str
    seq: int
    at: str
    state: msgspec.Raw


class MessageLine(msgspec.Struct, tag_field="row", tag="message", frozen=True, omit_defaults=True):
    """A durable message or a timer that waits."""

    type: str
    entity: str
    target_type: str
    target: str
    command: str
    args: msgspec.Raw
    due: str
    key: str | None = None


Line = PersonLine | EventLine | SnapshotLine | MessageLine


class Erased(Exception):
    """The person was erased, maybe since the reading began: no value can be read."""


def lines(where: Conninfo, subject: str, by: str, progress: Progress) -> Iterator[Line]:
    """Read all about a person. Raises Erased, NoKeys, UnknownJournals, psycopg.Error.

    All journals answer before the first value is read. If the person is erased meanwhile, the end
    raises Erased too.
    """
    name = identifiers.entity_id(subject)
    vault = personal_vault(get_settings())
    if vault is None:
        raise NoKeys(NO_KEYS)
    further = further_ways(get_settings())
    refuse_elsewhere(where, further)
    with (
        Subjects(where) as subjects,
        Journals(where, further, read_only=True) as transfer,
        ExitStack() as stack,
    ):
        others = [_opened(stack, name, further[name]) for name in transfer.in_use()]
        key = answered(
            keys_of(vault, [name], make=False), lambda ask: subjects.rows(ask.query, ask.params)
        ).get(name)
        if key is not None and key.key is None:
            raise Erased
        who = f"person {key.row.hex()[:8]}" if key is not None else "a person without a key"
        subjects.rows("subject_note", {"action": "subject_exported", "detail": f"{who}, by {by}"})
        yield PersonLine(name, transfer.cluster_id())

        def look() -> None:
            if key is not None and not subjects.rows("subject_keys", {"rows": [key.row]}):
                raise Erased

        reader = _Reader(vault, key, name, progress, look)
        own = own_types()
        for type_name in dict.fromkeys((*own, *types_with_data())):
            try:
                known = transfer.type(type_name)
            except UnknownTypes:
                continue  # no node has hosted it yet
            yield from reader.of_type(transfer, known, is_own=type_name in own)
        for each in (subjects, *others):
            yield from reader.of_messages(each, own)
        look()


def _opened(stack: ExitStack, name: str, way: Conninfo) -> Subjects:
    try:
        return stack.enter_context(Subjects(way, name))
    except ServerError as error:
        raise JournalDown(name, error) from error


class _Reader:
    """Reads rows, and keeps those that are about the person."""

    def __init__(
        self,
        vault: Vault,
        key: SubjectKey | None,
        subject: str,
        progress: Progress,
        look: Callable[[], object] = bool,
    ) -> None:
        """`look` raises Erased once the key is gone. It is called behind each page that is read,
        and the values of the page are opened before any of its lines is given away.
        """
        self._revealing = Revealing(vault, key)
        self._subject = subject
        self._progress = progress
        self._look = look
        self._rows = 0
        self._told: set[str] = set()
        "Messages. A move that was stopped has left a copy of some in another journal."

    def of_type(self, transfer: Transfer, known: KnownType, *, is_own: bool) -> Iterator[Line]:
        for events in _pages(transfer.events(known.number)):
            self._look()
            yield from [
                line
                for each in events
                for line in self._event(known, each, own=is_own and each.entity == self._subject)
            ]
        # Behind the events. A node deletes an event once a snapshot has its state, so those that it
        # deletes between two pages are in a snapshot that is read here.
        for snapshots in _pages(transfer.snapshots(known.number)):
            self._look()
            yield from [
                line
                for each in snapshots
                for line in self._snapshot(known, each, own=is_own and each.entity == self._subject)
            ]
        transfer.same_numbers(known)  # rows of a shard that has moved meanwhile go on elsewhere

    def of_messages(self, subjects: Subjects, own: list[str]) -> Iterator[Line]:
        after = ""
        while True:
            page = subjects.rows("subject_messages", {"after": after, "limit": PAGE_MESSAGES})
            self._look()
            yield from [line for each in page for line in self._message(*each, own=own)]
            if len(page) < PAGE_MESSAGES:
                return
            after = page[-1][0]

    def _message(
        self,
        message: str,
        name: str,
        entity: str,
        target_type: str,
        target: str,
        command: str,
        args: bytes,
        due: str,
        key: str | None,
        *,
        own: list[str],
    ) -> Iterator[Line]:
        before = self._looked()
        is_own = (name in own and entity == self._subject) or (target_type in own and target == self._subject)
        document = Document(bytes(args), MESSAGE_PLACE, is_packed=True)
        shown = msgspec.Raw(self._revealing.document(document, own=is_own))
        if message not in self._told and (is_own or self._revealing.values > before):
            self._told.add(message)
            yield MessageLine(name, entity, target_type, target, command, shown, due, key)

    def _event(self, known: KnownType, row: StoredRow, *, own: bool) -> Iterator[Line]:
        before = self._looked()
        place = known.number, row.entity, row.seq
        payload = self._revealing.document(Document(row.payload.encode(), event_place(*place)), own=own)
        reply = None
        if row.reply is not None:
            document = Document(bytes(row.reply), reply_place(*place), is_packed=True)
            reply = msgspec.Raw(self._revealing.document(document, own=own))
        if own or self._revealing.values > before:
            yield EventLine(
                known.config.name, row.entity, row.seq, row.at, row.name, raw(payload.decode()), row.command, reply
            )  # fmt: skip

    def _snapshot(self, known: KnownType, row: StoredSnapshot, *, own: bool) -> Iterator[Line]:
        before = self._looked()
        document = Document(row.state.encode(), state_place(known.number, row.entity, row.seq))
        state = self._revealing.document(document, own=own)
        if own or self._revealing.values > before:
            yield SnapshotLine(known.config.name, row.entity, row.seq, row.at, raw(state.decode()))

    def _looked(self) -> int:
        """Count a row that is looked at; return the values that were shown before it."""
        self._rows += 1
        if self._rows % TOLD_ROWS == 0:
            self._progress(f"{self._rows} rows looked at")
        return self._revealing.values


def _pages(rows: Iterable[T]) -> Iterator[list[T]]:
    found = iter(rows)
    while page := list(islice(found, PAGE_ROWS)):
        yield page
