"""Settings and declarations: what the system checks of this app say, with the ids that they have there; servers that do
not answer; keys that do not fit."""

from collections.abc import Iterator

from django.core import checks

from sharding_app.doctor.finding import Finding, Severity, error
from sharding_app.doctor.look import Look

PLACES = {
    "E001": "SHARDING", "E002": "DATABASES", "E003": "CHANNEL_LAYERS", "E004": "CHANNEL_LAYERS", "E005": "CHANNEL_LAYERS",
    "E006": "entity classes", "E007": "this machine", "W001": "DATABASES", "W002": "CHANNEL_LAYERS", "W003": "CHANNEL_LAYERS",
    "W004": "CHANNEL_LAYERS", "W005": "SHARDING['KEYS']",
}  # fmt: skip


def checked(look: Look) -> Iterator[Finding]:
    for message in look.checks:
        number = str(message.id).removeprefix("sharding.")
        if number == "W001" and look.database is not None:
            continue  # a guess: the server itself was asked, and E011 or W007 say what it answered
        where = PLACES.get(number, "PostgreSQL")
        yield Finding(str(message.id), _severity(message), message.msg, where, message.hint or "")


def unreachable(look: Look) -> Iterator[Finding]:
    """Servers that do not answer: the exit code is then 2."""
    if look.database_trouble:
        yield error(
            "D101", look.database_trouble, "PostgreSQL",
            "Start the server, give it room for more connections, or correct DATABASES. Nothing moves and nothing is acknowledged "
            "until it can be used; nodes wait for it and go on by themselves.",
        )  # fmt: skip
    if look.nodes_trouble:
        yield error(
            "D102", look.nodes_trouble, "channel layer",
            "Start Redis or correct CHANNEL_LAYERS. Nodes wait for it and go on by themselves; nothing that was acknowledged "
            "is lost.",
        )  # fmt: skip


def sealed(look: Look) -> Iterator[Finding]:
    if look.nodes is not None and look.nodes.seals_broken:
        yield error(
            "D103",
            f"{look.nodes.seals_broken} messages that came here were sealed with a key that this process does not have.",
            "SHARDING['KEYS']",
            "Give every process the same keys: the first one seals, all of them open. To change a key, add the new one at "
            "the end everywhere, then move it to the front, then remove the old one.",
        )  # fmt: skip


def _severity(message: checks.CheckMessage) -> Severity:
    if message.level >= checks.ERROR:
        return "error"
    return "warning" if message.level >= checks.WARNING else "note"
