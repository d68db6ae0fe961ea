"""Types of command line arguments: each returns the value, or says which values it accepts."""

from argparse import ArgumentTypeError


def count(text: str) -> int:
    """Read a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError("must be a whole number of at least 1")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    """Read whole numbers of at least 1, separated by commas."""
    return tuple(count(each) for each in text.split(","))


def positive(text: str) -> float:
    """Read a number of seconds, minutes or calls greater than 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError("must be a number greater than 0")
    return number
