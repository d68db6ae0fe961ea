"""What each error says of what was stored: one table, which names every code that is raised."""

import ast
import re
from pathlib import Path

import pytest

from sharding_app import errors
from sharding_app.errors import (
    STORED,
    AskTimeout,
    BufferFull,
    EntityFailed,
    NotSerializable,
    PartiallyApplied,
    Rejected,
    ShardingError,
    Unavailable,
    from_wire,
    to_wire,
)
from sharding_app.runtime.asking.undelivered import REASONS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    path
    for path in sorted((ROOT / "sharding_app").rglob("*.py"))
    if path.parts[-2] not in ("simulation", "bench", "migrations")
]
ERRORS = {
    name for name in vars(errors) if isinstance(vars(errors)[name], type) and issubclass(vars(errors)[name], ShardingError)
}  # fmt: skip


def codes_in(path: Path) -> set[str]:
    """The codes that this file gives to errors of ours."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            for keyword in node.keywords:
                if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                    found.add(str(keyword.value.value))
    return found


def test_every_kind_and_every_code_that_is_raised_is_in_the_table() -> None:
    kinds = {vars(errors)[name].kind for name in ERRORS}
    raised = set().union(*map(codes_in, SOURCES))
    assert {"stopped_by_force", "too_old", "call_cycle", "reply_too_large"} <= raised, "the search finds them"
    assert kinds | raised | set(REASONS) == set(STORED)


def test_the_docs_say_what_the_table_says() -> None:
    text = (ROOT / "docs/entities.md").read_text()
    told: dict[str, str] = {}
    for codes, stored in re.findall(r"^\| (`[a-z_`, ]+`) \| (nothing|partly|unknown) \|", text, re.MULTILINE):
        told |= dict.fromkeys(re.findall(r"`([a-z_]+)`", codes), stored)
    assert told == {code: STORED[code] for code in told}
    kinds = {vars(errors)[name].kind for name in ERRORS}
    assert set(told) >= set(STORED) - kinds, "each code that is not a class of its own is explained"


@pytest.mark.parametrize(
    ("error", "stored"),
    [
        (Rejected("no", code="fate_unknown"), "nothing"),
        (EntityFailed("x"), "nothing"),
        (PartiallyApplied("x"), "partly"),
        (NotSerializable("x", code="state_too_large"), "nothing"),
        (BufferFull("x"), "nothing"),
        (AskTimeout("x"), "unknown"),
        (Unavailable("x", code="stopped_by_force"), "nothing"),
        (Unavailable("x", code="poisonous"), "unknown"),
        (Unavailable("x", code="of a later release"), "unknown"),
    ],
)
def test_an_error_says_it_at_both_ends_of_the_wire(error: ShardingError, stored: str) -> None:
    assert error.stored == stored
    assert from_wire(*to_wire(error)).stored == stored


def test_a_kind_of_a_later_release_says_nothing() -> None:
    assert from_wire("never_heard_of", "x").stored == "unknown"


def test_a_refusal_of_the_users_may_have_an_attribute_of_that_name() -> None:
    class SoldOut(Rejected):
        def __init__(self, stored: int) -> None:
            super().__init__("sold out")
            self.left = stored

    assert SoldOut(3).stored == "nothing"
