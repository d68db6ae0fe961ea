"""Errors travel as plain values and come out as themselves, and nothing else comes out."""

import copy
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding_app import errors
from sharding_app.errors import (
    AskTimeout,
    EntityFailed,
    PartiallyApplied,
    Rejected,
    ShardingError,
    from_wire,
    to_wire,
)
from tests.unit.runtime.execution.nasty import OfAResponse


class SoldOut(Rejected):
    """A user's own, with a constructor of its own."""

    def __init__(self, sku: str, left: int) -> None:
        super().__init__(f"{sku} is sold out", code="sold_out", params={"sku": sku})
        self.sku = sku
        self.left = left


def round_trip(error: BaseException) -> ShardingError:
    wire = msgspec.msgpack.decode(msgspec.msgpack.encode(tuple(to_wire(error))))
    return from_wire(*wire)


KINDS = list(errors._KINDS.values())


@pytest.mark.parametrize("cls", KINDS)
def test_every_class_of_the_tree_travels(cls: type[ShardingError]) -> None:
    error = round_trip(cls("it failed", params={"a": [1, None, "x"]}))

    assert type(error) is cls
    assert (str(error), error.code, error.params) == ("it failed", cls.kind, {"a": [1, None, "x"]})
    assert cls.__doc__
    assert cls.__name__ in errors.__all__


def test_kinds_are_their_own() -> None:
    assert len({cls.kind for cls in KINDS}) == len(KINDS) == len(errors._KINDS)


def test_what_may_go_well_later() -> None:
    assert {cls for cls in KINDS if cls.retryable} == {AskTimeout, errors.BufferFull, errors.Unavailable}


def test_bases_that_users_expect() -> None:
    assert issubclass(AskTimeout, TimeoutError)
    assert issubclass(errors.InvalidCall, TypeError)
    assert issubclass(errors.InvalidEntityId, TypeError)
    assert issubclass(errors.InvalidEntityId, ValueError)
    assert issubclass(errors.DeclarationError, TypeError)
    assert issubclass(errors.WrongContext, RuntimeError)
    assert issubclass(PartiallyApplied, EntityFailed)


def test_rejected_carries_code_and_params() -> None:
    error = round_trip(Rejected("no", "never", {"n": 1}))
    assert (type(error), error.message, error.code, error.params) == (Rejected, "no", "never", {"n": 1})
    assert Rejected("no").code == "rejected"


def test_a_users_subclass_reaches_the_caller_as_itself() -> None:
    error = round_trip(SoldOut("book", 3))

    assert type(error) is SoldOut
    assert (error.sku, error.left, error.code, error.params) == ("book", 3, "sold_out", {"sku": "book"})
    assert str(error) == "book is sold out"


@pytest.mark.parametrize(
    "path", ["os.system", "builtins.Exception", "nowhere.Rejected", 5, None, "subprocess.Popen"]
)
def test_nothing_arbitrary_is_decoded(path: Any) -> None:
    error = from_wire("rejected", "no", {"class": path, "own": {"args": [1], "x": 1}})
    assert type(error) is Rejected
    assert not hasattr(error, "x")


def test_own_attributes_cannot_replace_what_is_ours() -> None:
    path = f"{SoldOut.__module__}.{SoldOut.__qualname__}"
    error = from_wire(
        "rejected", "no", {"class": path, "own": {"message": "yes", "a b": 1, "__class__": "x"}}
    )
    assert type(error) is SoldOut
    assert error.message == "no"
    assert "a b" not in vars(error)


def test_an_unknown_kind_is_still_an_error_of_ours() -> None:
    error = from_wire("from_the_future", "new")
    assert (type(error), error.code, str(error)) == (ShardingError, "from_the_future", "new")


def test_any_other_exception_becomes_a_failure_by_name() -> None:
    error = round_trip(KeyError("x"))
    assert type(error) is EntityFailed
    assert (str(error), error.params) == ("KeyError: 'x'", {"error": "KeyError"})


def test_what_is_not_plain_goes_as_text() -> None:
    deep: list[Any] = []
    for _ in range(20):
        deep = [deep]
    wild: Any = {"o": object, "s": "\ud800", "n": 2**70, "t": (1, {2}), 5: 6, "deep": deep}
    error = round_trip(Rejected("\ud800", params=wild))
    assert error.message == "\\ud800"
    assert error.params["o"] == "<class 'object'>"
    assert (error.params["s"], error.params["n"], error.params["t"]) == ("\\ud800", str(2**70), [1, [2]])
    assert error.params["5"] == 6


class Unnamed(Rejected):
    """A user's own, whose constructor never calls ours."""

    def __init__(self, left: int) -> None:
        self.left = left


def test_a_constructor_that_never_calls_ours_costs_the_text_alone() -> None:
    error = round_trip(Unnamed(3))
    assert type(error) is Unnamed
    assert (error.left, error.message, error.code, error.params) == (3, "", "rejected", {})
    assert not hasattr(error, "right")


class Mute:
    def __str__(self) -> str:
        raise LookupError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    "error",
    [Rejected("no", params={"by": Mute()}), Rejected(cast(str, Mute())), OfAResponse("no")],
    ids=["params", "message", "attributes"],
)
def test_an_error_that_cannot_be_read_becomes_a_failure_by_name(error: Exception) -> None:
    found = round_trip(error)
    assert type(found) is EntityFailed
    assert found.params == {"error": type(error).__qualname__}
    assert str(found).startswith(type(error).__qualname__)


def test_errors_can_be_copied() -> None:
    error = copy.copy(SoldOut("book", 3))
    assert (type(error), error.sku, str(error)) == (SoldOut, "book", "book is sold out")


@given(st.text(), st.text(), st.none() | st.dictionaries(st.text(), st.none() | st.integers() | st.text()))
def test_whatever_comes_from_the_wire_is_an_error_of_ours(kind: str, message: str, params: Any) -> None:
    assert isinstance(from_wire(kind, message, params), ShardingError)
