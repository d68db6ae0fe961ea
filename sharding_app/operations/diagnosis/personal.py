"""Personal data: its keys can be unwrapped, and erasures have come to their end."""

from collections.abc import Iterator

from sharding_app.operations.console import counted
from sharding_app.operations.diagnosis.finding import Finding, error, warning
from sharding_app.operations.diagnosis.look import Look


def examine(look: Look) -> Iterator[Finding]:
    database = look.database
    if database is None:
        return
    if database.locked_keys:
        yield error(
            "D221", f"{counted(database.locked_keys, 'key')} of personal data, of at most 1,000 looked at, cannot be unwrapped "
            "here: entities with such data do not start.", "SHARDING['PERSONAL_KEYS']",
            "Put the missing secret back, at the end of the list. Without it the data is lost.",
        )  # fmt: skip
    if database.unfinished_erasures:
        yield warning(
            "D222", f"{counted(database.unfinished_erasures, 'erasure')} of persons did not end: the keys are gone, and entities "
            "of the persons may be there.", "sharding_subject",
            "Run manage.py sharding_erase_subject ID again for the persons that were to be erased.",
        )  # fmt: skip
