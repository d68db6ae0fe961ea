"""Settings and declarations: the findings of this app's system checks, with their ids.

Also servers that do not answer, and keys that do not match.
"""

from collections.abc import Iterator

from django.core import checks

from sharding_app.operations.diagnosis.finding import Finding, Severity, error
from sharding_app.operations.diagnosis.look import Look

PLACES = {
    "E001": "SHARDING", "E002": "DATABASES", "E003": "CHANNEL_LAYERS", "E004": "CHANNEL_LAYERS", "E005": "CHANNEL_LAYERS",
    "E006": "entity classes", "E007": "this machine", "E016": "DATABASES", "W001": "DATABASES", "W002": "CHANNEL_LAYERS", "W003": "CHANNEL_LAYERS",
    "W004": "CHANNEL_LAYERS", "W005": "SHARDING['KEYS']", "W010": "DATABASES", "E015": "SHARDING['PERSONAL_KEYS']",
    "W014": "entity classes", "W015": "entity classes", "W016": "entity classes",
}  # fmt: skip


def checked(look: Look) -> Iterator[Finding]:
    for message in look.checks:
        number = str(message.id).removeprefix("sharding.")
        if number == "W001" and look.database is not None:
            continue  # a guess: the server itself was asked, and E011 or W007 has its answer
        where = PLACES.get(number, "PostgreSQL")
        yield Finding(str(message.id), _severity(message), message.msg, where, message.hint or "")


def unreachable(look: Look) -> Iterator[Finding]:
    """Report servers that do not answer; the exit code is then 2."""
    if look.database_trouble:
        yield error(
            "D101", look.database_trouble, "PostgreSQL",
            "The documentation says which rights roles need (page on roles). manage.py migrate makes the tables." if look.has_refused else
            "Start the server, allow more connections, or correct DATABASES. Until then no shard moves and no command is "
            "acknowledged. Nodes wait for the server and need no restart.",
        )  # fmt: skip
    if look.nodes_trouble:
        yield error(
            "D102", look.nodes_trouble, "channel layer",
            "Start Redis, or correct CHANNEL_LAYERS. Nodes wait for it and need no restart. Nothing acknowledged is lost.",
        )  # fmt: skip


def sealed(look: Look) -> Iterator[Finding]:
    if look.seals_broken:
        yield error(
            "D103",
            f"{look.seals_broken} messages arrived here that were sealed with a key unknown to this process.",
            "SHARDING['KEYS']",
            "Give every process the same keys. A process seals with the first key and accepts all of them. To rotate: append "
            "the new key on all processes, then move it to the front, then remove the old one.",
        )  # fmt: skip


def _severity(message: checks.CheckMessage) -> Severity:
    if message.level >= checks.ERROR:
        return "error"
    return "warning" if message.level >= checks.WARNING else "note"
