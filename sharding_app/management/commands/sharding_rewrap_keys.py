"""`manage.py sharding_rewrap_keys`: wrap the keys of personal data with the first secret."""

from argparse import ArgumentParser
from typing import Any

from sharding_app.adapters.personal.sealing import NoKeys
from sharding_app.management.deletion_command import DatabaseCommand
from sharding_app.management.operator_command import refused, signed
from sharding_app.management.progress import Progress
from sharding_app.operations.console import counted
from sharding_app.operations.rewrapping import Rewrapping, Secrets, look, rewrap


class Command(DatabaseCommand):
    help = (
        "Wrap the keys of all persons with the first secret of PERSONAL_KEYS, so that the others can be taken away.\n"
        "Put the new secret in front of the list in every process first: one that does not have it cannot read the\n"
        "data any more. Nodes may run. After an interruption run it again: it goes on. It reports success only when no\n"
        "key is wrapped with another secret.\n\n"
        "Examples:\n"
        "  manage.py sharding_rewrap_keys --check       only report which secrets the keys need\n"
        "  manage.py sharding_rewrap_keys               ask, then wrap\n"
        "  manage.py sharding_rewrap_keys --yes --json  for scripts\n\n"
        "Exit codes: 0 done, 1 refused or not finished, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--check", action="store_true", help="only report which secrets the keys need")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def work(self, options: dict[str, Any]) -> None:
        try:
            if options["check"]:
                found = Rewrapping(0, self.on_database(look))
            else:
                self.sure(
                    "Is the new secret in front of PERSONAL_KEYS in every process, and were all of them started again?",
                    yes=options["yes"],
                )
                found = self._rewrap()
        except NoKeys as error:
            raise refused(f"{error}.") from error
        self._report(found.secrets)
        self.say("No key needs another secret than the first one.")
        self.result(rewrapped=found.keys, **found.secrets._asdict())

    def _rewrap(self) -> Rewrapping:
        progress = Progress(self.stderr, quiet=self.as_json)
        try:
            found = self.on_database(lambda where: rewrap(where, signed("sharding_rewrap_keys"), progress))
        finally:
            progress.done()
        self.say(f"Wrapped anew: {counted(found.keys, 'key')}.")
        return found

    @staticmethod
    def _report(found: Secrets) -> None:
        """Raise where a key needs another secret than the first."""
        needed = []
        if found.old:
            needed.append(
                f"{counted(found.old, 'key')} under an old secret: run the command again, without --check. If some are left "
                "each time, a process has the old secret in front: give it the new one and start it again."
            )
        if found.unknown:
            needed.append(
                f"{counted(found.unknown, 'key')} under a secret that is not in PERSONAL_KEYS here: put it at the end of the "
                "list, and run the command again."
            )
        if needed:
            raise refused(" ".join(["Not finished. Keep the old secrets.", *needed]))
