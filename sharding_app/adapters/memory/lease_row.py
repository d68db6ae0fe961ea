"""A row of the leases' table."""

from dataclasses import dataclass


@dataclass(slots=True)
class LeaseRow:
    owner: str | None = None
    token: int = 0
    expires_at: float | None = None
    "None: the row of its owner says so."
    acquired_at: float = 0.0
