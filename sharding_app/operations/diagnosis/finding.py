"""One finding: a stable id, its severity, the problem, its place, and the fix."""

from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, with an id of docs/troubleshooting.md or docs/checks.md; SILENCED_SYSTEM_CHECKS
    applies.
    """

    id: str
    severity: Severity
    what: str
    where: str
    fix: str

    @property
    def is_severe(self) -> bool:
        """Tell whether it needs action now: the status, the health check and the dashboard turn
        bad.
        """
        return self.severity == "error"

    @property
    def is_problem(self) -> bool:
        """Tell whether it is a problem; a note needs no action."""
        return self.severity != "note"

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def error(number: str, what: str, where: str, fix: str) -> Finding:
    return Finding(f"sharding.{number}", "error", what, where, fix)


def warning(number: str, what: str, where: str, fix: str) -> Finding:
    return Finding(f"sharding.{number}", "warning", what, where, fix)


def note(number: str, what: str, where: str, fix: str) -> Finding:
    return Finding(f"sharding.{number}", "note", what, where, fix)
