"""Documents are sealed and opened: which keys are needed, and what becomes of each value.

Each function is a generator of `Ask`: it asks for rows and is sent them, so that one text serves
the event loop and Django's threads. No key outlives it. `SECURE` asks to wait until a synchronous
standby has all that was committed where the keys are.

A subject's key is made with the first value that is sealed for the subject, and is committed before
the value is. Of two that are made at once the first one stays: the rows are read again. A subject
that was erased gets no other key.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from sharding_app.adapters.personal.vault import (
    INDEX,
    CannotOpen,
    KeyUnreadable,
    Vault,
    mark_of,
    new_row,
    row_of,
)
from sharding_app.protocol.personal import (
    BROKEN,
    ERASED_TOKEN,
    PERSONAL,
    SEALED,
    Change,
    Token,
    plain_of,
    repacked,
    rewritten,
)

T = TypeVar("T")


class Ask(NamedTuple):
    """A statement `subject_*` and its parameters. Answer: its rows."""

    query: str
    params: dict[str, Any]


SECURE = Ask("secure", {})

Steps = Generator[Ask, list[tuple[Any, ...]], T]


class Document(NamedTuple):
    data: bytes
    place: str
    "What it belongs to: its ciphertexts open nowhere else."
    is_packed: bool = False
    "MessagePack, not JSON."
    is_state: bool = False
    "It is made of values that are stored already: those of an erased subject are left out."

    def changed(self, change: Change) -> bytes:
        return (repacked if self.is_packed else rewritten)(self.data, change)


class SubjectsErased(Exception):
    """Documents have personal data of subjects that were erased. Nothing was sealed."""

    def __init__(self, documents: Sequence[int]) -> None:
        super().__init__("personal data of an erased subject")
        self.documents = documents


class NoKeys(Exception):
    """Personal data cannot be sealed or opened by this process. The text says why."""


NO_KEYS = (
    "SHARDING['PERSONAL_KEYS'] is empty here, so no personal data can be sealed or opened: give each process that stores"
    " or reads it the same keys, and install the package cryptography"
)
KEY_MISSING = (
    "a key of personal data was wrapped with a secret that is not in SHARDING['PERSONAL_KEYS'] here: put it back, at the"
    " end of the list"
)
KEY_NOT_THERE = (
    "the database has taken a key of personal data and does not have it: row-level security, a trigger or a rule hides the"
    " rows of sharding_subject from this role"
)


class SubjectKey(NamedTuple):
    """The row of a subject, and the key that stands in it."""

    row: bytes
    key: bytes | None
    "None: its subject was erased."


class Secured:
    """The keys that a synchronous standby has, as this process has made sure of.

    A key is visible before the standby has it. In the same database a value is committed behind its
    key, so no failover loses the key alone. In another database the value would outlive the key.
    """

    MOST = 50_000

    def __init__(self) -> None:
        self._rows: set[bytes] = set()

    def lacks(self, keys: Iterable[SubjectKey]) -> bool:
        return any(each.row not in self._rows for each in keys)

    def note(self, keys: Iterable[SubjectKey]) -> None:
        if len(self._rows) >= self.MOST:
            self._rows.clear()
        self._rows.update(each.row for each in keys)


def sealed(
    vault: Vault | None, documents: Sequence[Document], secured: Secured | None = None
) -> Steps[list[bytes]]:
    """Return the documents as they may be stored. Raises SubjectsErased, NoKeys. `secured`: they
    are stored in another database than their keys.
    """
    subjects: dict[str, None] = {}
    for each in documents:
        subjects.update(dict.fromkeys(_subjects(each)))
    if not subjects:
        return [each.data for each in documents]
    keys = yield from keys_of(vault, subjects)
    gone = {subject for subject, found in keys.items() if found.key is None}
    if gone:
        wrong = [
            number
            for number, each in enumerate(documents)
            if not each.is_state and not gone.isdisjoint(_subjects(each))
        ]
        if wrong:
            raise SubjectsErased(wrong)
    if secured is not None and secured.lacks(keys.values()):
        yield SECURE
        secured.note(keys.values())
    return [each.changed(_sealing(_there(vault), keys, each.place)) for each in documents]


def opened(vault: Vault | None, documents: Sequence[Document]) -> Steps[list[bytes]]:
    """Return stored documents with their values, those of erased subjects without. Raises
    NoKeys.
    """
    rows: dict[bytes, None] = {}
    for each in documents:
        rows.update(dict.fromkeys(row_of(token.data) for token in _tokens(each) if token.kind == SEALED))
    if not rows:
        return [each.data for each in documents]
    there = _there(vault)
    found = yield Ask("subject_keys", {"rows": list(rows)})
    keys = {bytes(row): _unwrapped(there, wrapped, row) for row, wrapped in found}
    return [each.changed(_opening(there, keys, each.place)) for each in documents]


def keys_of(
    vault: Vault | None, subjects: Iterable[str], *, make: bool = True
) -> Steps[dict[str, SubjectKey]]:
    """Return the keys of subjects, and make those that are missing. Raises NoKeys."""
    there = _there(vault)
    index = yield from index_key(there)
    marks = {mark_of(index, subject): subject for subject in subjects}
    found = yield from _found(there, marks)
    missing = [mark for mark, subject in marks.items() if subject not in found]
    if missing and make:
        rows = [new_row() for _ in missing]
        wrapped = [there.new_key(row) for row in rows]
        yield Ask("subject_add", {"rows": rows, "marks": missing, "keys": wrapped})
        found = yield from _found(there, marks)
        if len(found) < len(marks):  # else its values would be stored in clear
            raise NoKeys(KEY_NOT_THERE)
    return found


def index_key(vault: Vault) -> Steps[bytes]:
    """Return the key that makes marks; the first caller makes it. Raises NoKeys."""
    ask = Ask("subject_keys", {"rows": [INDEX]})
    rows = yield ask
    if not rows:
        yield Ask("subject_add", {"rows": [INDEX], "marks": [b""], "keys": [vault.new_key(INDEX)]})
        rows = yield ask
        if not rows:
            raise NoKeys(KEY_NOT_THERE)
    return _unwrapped(vault, rows[0][1], INDEX)


def _found(vault: Vault, marks: dict[bytes, str]) -> Steps[dict[str, SubjectKey]]:
    rows = yield Ask("subject_find", {"marks": list(marks)})
    return {
        marks[bytes(mark)]: SubjectKey(
            bytes(row), None if wrapped is None else _unwrapped(vault, wrapped, row)
        )
        for row, mark, wrapped in rows
    }


def _there(vault: Vault | None) -> Vault:
    if vault is None:
        raise NoKeys(NO_KEYS)
    return vault


def _unwrapped(vault: Vault, wrapped: bytes, row: bytes) -> bytes:
    try:
        return vault.unwrap(bytes(wrapped), bytes(row))
    except KeyUnreadable:
        raise NoKeys(KEY_MISSING) from None


def _tokens(document: Document) -> list[Token]:
    found: list[Token] = []

    def note(number: int, token: Token) -> Token:
        found.append(token)
        return token

    document.changed(note)
    return found


def _subjects(document: Document) -> list[str]:
    plains = [plain_of(token) for token in _tokens(document) if token.kind == PERSONAL]
    return [each.subject for each in plains if each.subject]


def _sealing(vault: Vault, keys: dict[str, SubjectKey], place: str) -> Change:
    def change(number: int, token: Token) -> Token:
        if token.kind != PERSONAL:
            return token
        found = keys.get(plain_of(token).subject)
        if found is None:
            return token  # a value without a subject, older than its annotation
        if found.key is None:
            return ERASED_TOKEN
        return Token(SEALED, vault.seal(found.key, found.row, token.data, value_place(place, number)))

    return change


def _opening(vault: Vault, keys: dict[bytes, bytes], place: str) -> Change:
    def change(number: int, token: Token) -> Token:
        if token.kind != SEALED:
            return token
        key = keys.get(row_of(token.data))
        if key is None:
            return ERASED_TOKEN
        try:
            return Token(PERSONAL, vault.open(key, token.data, value_place(place, number)))
        except CannotOpen:
            return Token(BROKEN)

    return change


def value_place(place: str, number: int) -> bytes:
    """Return the place of one value in a document: its ciphertext opens nowhere else."""
    return f"{number}/{place}".encode()


def answered(steps: Steps[T], answer: Callable[[Ask], list[tuple[Any, ...]]]) -> T:
    """Carry the steps out, where asking does not wait."""
    rows: list[tuple[Any, ...]] | None = None
    while True:
        try:
            ask = next(steps) if rows is None else steps.send(rows)
        except StopIteration as end:
            found: T = end.value
            return found
        rows = answer(ask)


def event_place(type_id: int, entity: str, seq: int) -> str:
    return f"event {type_id} {seq} {entity}"


def state_place(type_id: int, entity: str, seq: int) -> str:
    return f"state {type_id} {seq} {entity}"


def reply_place(type_id: int, entity: str, seq: int) -> str:
    return f"reply {type_id} {seq} {entity}"


MESSAGE_PLACE = "message"
"""Of arguments: a message gets another id when it is stored anew."""
