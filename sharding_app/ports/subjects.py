"""Subjects of personal data: the rows that hold their keys, and the journal's questions about them.

Contract: a key is read from the server for each batch, and kept no longer. So a write that begins
after a subject was erased finds no key, whatever node it runs on.
"""

from typing import Any, Protocol


class SubjectRows(Protocol):
    async def subject_rows(self, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run one of the statements `subject_*`. Raises JournalUnavailable."""
        ...

    async def secure(self) -> None:
        """Do as `ports.journal.Journal.secure`, where the keys are."""
        ...
