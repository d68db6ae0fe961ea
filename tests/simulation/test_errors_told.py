"""What the judge makes of an error that says what is stored."""

import pytest

from sharding_app.errors import (
    STORED,
    AskTimeout,
    BufferFull,
    PartiallyApplied,
    Rejected,
    ShardingError,
    Unavailable,
)
from sharding_app.testing.simulation.promises import (
    Call,
    Entry,
    PromiseBroken,
    check_history,
    error_says_what_is_stored,
)


def failed(error: ShardingError, *, in_doubt: bool = False) -> Call:
    return Call(
        1, "me", "cart", "add_in_steps", ("first", "second"), 0.0, 1.0, error=error, in_doubt=in_doubt
    )


@pytest.mark.parametrize("stored", ["", "first", "second"])
@pytest.mark.parametrize(
    "error",
    [AskTimeout(), *(Unavailable(code=code) for code, stored in STORED.items() if stored == "unknown")],
)
def test_in_doubt_is_anything(error: ShardingError, stored: str) -> None:
    error_says_what_is_stored(failed(error), (stored,))


@pytest.mark.parametrize(
    "error",
    [
        BufferFull(),
        Rejected(code="mine"),
        *(Unavailable(code=code) for code, stored in STORED.items() if stored == "nothing"),
    ],
)
def test_nothing_is_nowhere(error: ShardingError) -> None:
    call = failed(error)
    error_says_what_is_stored(call, ("another",))
    for token in call.tokens:
        with pytest.raises(PromiseBroken, match="failed_is_not_stored"):
            error_says_what_is_stored(call, (token,))


def test_partly_is_there() -> None:
    call = failed(PartiallyApplied())
    error_says_what_is_stored(call, ("first",))
    with pytest.raises(PromiseBroken, match="partly_is_stored"):
        error_says_what_is_stored(call, ())


def test_an_error_says_nothing_of_an_attempt_before_it() -> None:
    error_says_what_is_stored(failed(BufferFull(), in_doubt=True), ("first",))


def test_a_call_that_has_not_ended_says_nothing() -> None:
    call = failed(BufferFull())
    call.ended = None
    error_says_what_is_stored(call, ("first",))


@pytest.mark.parametrize("waits_for", [5.0, float("inf")])
def test_a_call_has_to_end_in_its_time(waits_for: float) -> None:
    call = Call(1, "me", "cart", "add", ("first",), 1.0, patience=waits_for)
    check_history([call], {}, now=6.0)
    if waits_for < 6.0:
        with pytest.raises(PromiseBroken, match="promise 8, every_call_ends: "):
            check_history([call], {}, now=6.5)
    else:
        check_history([call], {}, now=1e9)


def test_a_history_is_looked_at_as_a_whole() -> None:
    call = failed(BufferFull())
    check_history([call], {})
    with pytest.raises(PromiseBroken, match="failed_is_not_stored"):
        check_history([call], {"cart": [Entry(1, 1, "first", 0.5)]})
