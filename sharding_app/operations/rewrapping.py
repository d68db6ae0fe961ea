"""Wraps the keys of persons with another secret, so that an old one can be taken away.

Each page is a commit of its own, and a key that the first secret has wrapped is passed over. So a
run that was interrupted is gone on with by another one. A key that is erased meanwhile stays
erased: it is written only where it is as it was read.
"""

from typing import NamedTuple

from sharding_app.adapters.personal.sealing import NO_KEYS, NoKeys
from sharding_app.adapters.personal.vault import KeyUnreadable, Vault, names_of
from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.subjects import Subjects
from sharding_app.operations.erasing import Progress
from sharding_app.settings.load import get_settings
from sharding_app.wiring import personal_vault

PAGE_KEYS = 500


class Secrets(NamedTuple):
    """Which secrets have wrapped the keys."""

    new: int
    "Keys that the first secret of PERSONAL_KEYS has wrapped."
    old: int
    "Keys that one of the others has wrapped."
    unknown: int
    "Keys that a secret has wrapped that is not in PERSONAL_KEYS here."


class Rewrapping(NamedTuple):
    keys: int
    "Keys that were wrapped anew."
    secrets: Secrets
    "As it was at the end."


def look(where: Conninfo) -> Secrets:
    """Count the keys by their secrets. Raises NoKeys, psycopg.Error."""
    with Subjects(where) as subjects:
        _vault()
        return _safe_secrets(subjects)


def rewrap(where: Conninfo, by: str, progress: Progress) -> Rewrapping:
    """Wrap all keys with the first secret of PERSONAL_KEYS. Raises NoKeys, psycopg.Error."""
    with Subjects(where) as subjects:
        vault = _vault()
        done, number = 0, -1
        # What processes wrap meanwhile with another first secret comes in the next turn.
        while number:
            number = _turn(subjects, vault, done, progress)
            done += number
        if done:
            detail = f"{done} keys, by {by}"
            subjects.rows("subject_note", {"action": "personal_keys_rewrapped", "detail": detail})
            subjects.clean()
        return Rewrapping(done, _safe_secrets(subjects))


def _turn(subjects: Subjects, vault: Vault, done: int, progress: Progress) -> int:
    """Look at each key once; return the number of those that were wrapped anew."""
    (name, *_) = names_of(get_settings().personal_secrets)
    after, number = b"", 0
    while True:
        page = subjects.rows("subject_old", {"after": after, "name": name, "limit": PAGE_KEYS})
        found = {row: (wrapped, _rewrapped(vault, wrapped, row)) for row, wrapped in _bytes(page)}
        new = {row: (old, wrapped) for row, (old, wrapped) in found.items() if wrapped is not None}
        if new:
            params = {
                "rows": list(new),
                "olds": [old for old, _ in new.values()],
                "news": [wrapped for _, wrapped in new.values()],
            }
            number += len(subjects.rows("subject_rewrap", params))
            progress(f"{done + number} keys wrapped anew")
        if len(page) < PAGE_KEYS:
            return number
        after = list(found)[-1]


def _rewrapped(vault: Vault, wrapped: bytes, row: bytes) -> bytes | None:
    """Return the key wrapped anew; None: no secret here unwraps it."""
    try:
        return vault.rewrapped(wrapped, row)
    except KeyUnreadable:
        return None


def _safe_secrets(subjects: Subjects) -> Secrets:
    """Count the keys, and return once a synchronous standby has them too: an old secret is taken
    away by these numbers.
    """
    found = _secrets(subjects)
    subjects.secure()
    return found


def _secrets(subjects: Subjects) -> Secrets:
    first, *others = names_of(get_settings().personal_secrets)
    numbers = {bytes(name): number for name, number in subjects.rows("subject_secrets", {})}
    old = sum(numbers.get(each, 0) for each in {*others} - {first})
    new = numbers.get(first, 0)
    return Secrets(new, old, sum(numbers.values()) - new - old)


def _bytes(page: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(bytes(row), bytes(wrapped)) for row, wrapped in page]


def _vault() -> Vault:
    vault = personal_vault(get_settings())
    if vault is None:
        raise NoKeys(NO_KEYS)
    return vault
