"""`manage.py sharding_erase TYPE ID`: erase one entity's history, as an erasure request demands."""

import asyncio
from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.db.models import Value
from django.db.models.functions import Replace

from sharding_app.adapters.postgres.erasure import (
    HomeAlive,
    Moved,
    count_entity,
    erase_entity,
    scrub_tables,
)
from sharding_app.bootstrap import new_loop
from sharding_app.core.messages import Steer, Steered
from sharding_app.core.records import TypeConfig
from sharding_app.doctor.read_journal import shard_by_id
from sharding_app.management.console import counted
from sharding_app.management.operating import refused, signed
from sharding_app.management.progress import Progress
from sharding_app.management.reach import joined, trouble
from sharding_app.management.removing import RemovingCommand, amount
from sharding_app.ports.journal import Erasure
from sharding_app.ports.store import StoreUnavailable
from sharding_app.runtime.process import Process

AGAIN_SECONDS = 0.2
ANSWER_SECONDS = 15.0


class Command(RemovingCommand):
    help = (
        "Erase one entity for good: its events, snapshots and remembered id. While the home of its shard is alive, the home\n"
        "does it: the entity's object goes first, and what comes meanwhile starts one without a past. The timeline notes\n"
        "that something of the type was erased, not of whom. Backups are yours to treat.\n\n"
        "Examples:\n"
        "  manage.py sharding_erase shop.Cart alice --dry-run     say what would go\n"
        "  manage.py sharding_erase shop.Cart alice               ask, then erase\n"
        "  manage.py sharding_erase shop.Cart alice --yes --json  for scripts\n\n"
        "Exit codes: 0 done, 1 refused or nothing is stored, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("type", metavar="TYPE", help="name of the type, such as shop.Cart")
        parser.add_argument("id", metavar="ID", help="the entity's id")
        parser.add_argument("--dry-run", action="store_true", help="only say what would be erased")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--scrub", action="store_true",
            help="also take the id out of the admin's history and of the planner's statistics")  # fmt: skip
        parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS",
            help="give up after N seconds without progress, while the entity is busy or moves (default: 30)")  # fmt: skip

    def work(self, options: dict[str, Any]) -> None:
        name, entity = options["type"], options["id"]
        if options["timeout"] <= 0:
            raise refused("--timeout needs a number of seconds greater than 0.")
        if options["dry_run"]:
            found = self._counted(name, entity)
            self.say(f"Would be erased: {amount(found)}.")
        else:
            question = ""
            if not options["yes"]:
                question = f"Erase {amount(self._counted(name, entity))} of {name} {entity!r} for good?"
            self.sure(question, yes=options["yes"], word="erase")
            found = self._erase(name, entity, options["timeout"])
            if options["scrub"]:
                self.say(f"Scrubbed: {counted(self._scrub(name, entity), 'line')} of the admin's history.")
        counts = {"events": found.events, "snapshots": found.snapshots, "remembered": found.remembered}
        self.result(dry_run=options["dry_run"], erased=counts)

    def _counted(self, name: str, entity: str) -> Erasure:
        found = self.on_database(lambda where: count_entity(where, name, entity))
        self._something(found, name, entity)
        return found

    def _scrub(self, name: str, entity: str) -> int:
        """Take the id out of places that only help to look things up; return how many lines named it."""
        self.on_database(scrub_tables)
        if not apps.is_installed("django.contrib.admin"):
            return 0
        from django.contrib.admin.models import LogEntry

        named = f"{name} {entity}:"
        lines = LogEntry.objects.filter(change_message__contains=named)
        return lines.update(
            change_message=Replace("change_message", Value(named), Value(f"{name} (erased):"))
        )

    @staticmethod
    def _something(found: Erasure, name: str, entity: str) -> None:
        if found == Erasure():
            raise refused(f"Nothing is stored of {name} {entity!r}.")

    def _erase(self, name: str, entity: str, timeout: float) -> Erasure:
        """Erase it in the database where its home is dead, else have the home do it."""
        progress = Progress(self.stderr, quiet=self.as_json)
        by = signed("sharding_erase")
        try:
            found = self.on_database(
                lambda where: erase_entity(
                    where, name, entity, by, lambda done: progress(f"{done.events} events erased")
                )
            )
        except (HomeAlive, Moved):
            home, found = self._ask_home(name, entity, timeout, progress)
            progress.done()
            self.say(f"Erased at its home {home}: {amount(found)}.")
        else:
            progress.done()
            self._something(found, name, entity)
            self.say(f"Erased: {amount(found)}.")
        return found

    # -- At its home -----------------------------------------------------------------------------------------------

    def _ask_home(self, name: str, entity: str, timeout: float, progress: Progress) -> tuple[str, Erasure]:
        """Have it erased where it lives; return the home's name, and how much it was."""
        with asyncio.Runner(loop_factory=new_loop) as runner:
            try:
                return runner.run(self._at_home(name, entity, timeout, progress))
            finally:
                progress.done()

    async def _at_home(
        self, name: str, entity: str, timeout: float, progress: Progress
    ) -> tuple[str, Erasure]:
        process = await joined()
        loop = asyncio.get_running_loop()
        deadline, said = loop.time() + timeout, ""
        try:
            shard = await self._shard(process, name, entity)
            while True:
                home, answer = await self._once(process, name, shard, entity)
                if answer.ok:
                    counts = answer.counts
                    return home, Erasure(counts["events"], counts["snapshots"], counts["remembered"])
                if answer.text != said:  # it gets on: the time limit is for one that does not
                    deadline, said = loop.time() + timeout, answer.text
                if not answer.again or loop.time() >= deadline:
                    raise refused(answer.text)
                progress(answer.text)
                await asyncio.sleep(AGAIN_SECONDS)
        except StoreUnavailable as error:
            raise trouble(error) from error
        finally:
            await process.close()

    async def _shard(self, process: Process, name: str, entity: str) -> int:
        types: list[TypeConfig] = await process.ports.store.types()
        config = next(each for each in types if each.name == name)
        try:
            shard = shard_by_id(config, process.types.get(name), entity)
        except Exception as error:
            raise refused(
                f"The extractor of {name} fails for this id: {type(error).__qualname__}."
            ) from error
        if shard is None:
            raise refused(
                f"The code of {name} is not installed here, so its shard cannot be told: run this where it is, or stop "
                "the cluster first: manage.py sharding_shutdown --all"
            )
        return shard

    async def _once(self, process: Process, name: str, shard: int, entity: str) -> tuple[str, Steered]:
        """Ask its present home; return the home's name, and its answer."""
        store = process.ports.store
        rows = await store.homes(name, [shard])
        _, members = await store.members()
        home = next((each for row in rows for each in members if each.incarnation == row.home), None)
        if home is None:
            text = (
                "Its rows belong to a shard of a living node that is not its home. Stop the cluster first: "
                "manage.py sharding_shutdown --all"
            )
            return "", Steered(0, ok=False, text=text)
        wish = Steer(0, "erase", name, shard, entity, by=signed("sharding_erase"))
        answer = await process.questions.steer(home.incarnation, wish, ANSWER_SECONDS)
        if answer is None:
            text = f"Its home {home.name} does not answer: it may have been erased or not. Look with --dry-run, and try again."
            return home.name, Steered(0, ok=False, text=text, again=True)
        return home.name, answer
