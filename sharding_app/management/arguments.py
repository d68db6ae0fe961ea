"""Types of command line arguments: each returns the value, or says what it should have been."""

from argparse import ArgumentTypeError


def count(text: str) -> int:
    """Read a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError("a whole number from 1 on")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    """Read such numbers, separated by commas."""
    return tuple(count(each) for each in text.split(","))


def positive(text: str) -> float:
    """Read a number of seconds, minutes or calls above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError("a number above 0")
    return number
