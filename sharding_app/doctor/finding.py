"""One thing that is wrong: an id that never changes, how bad it is, what, where, and what to do about it."""

from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """Ids are those of docs/operating.md and docs/checks.md; both are silenced by SILENCED_SYSTEM_CHECKS."""

    id: str
    severity: Severity
    what: str
    where: str
    fix: str

    @property
    def is_problem(self) -> bool:
        """A note is worth knowing, and no reason to get up at night."""
        return self.severity != "note"

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def error(number: str, what: str, where: str, fix: str) -> Finding:
    return Finding(f"sharding.{number}", "error", what, where, fix)


def warning(number: str, what: str, where: str, fix: str) -> Finding:
    return Finding(f"sharding.{number}", "warning", what, where, fix)


def note(number: str, what: str, where: str, fix: str) -> Finding:
    return Finding(f"sharding.{number}", "note", what, where, fix)
