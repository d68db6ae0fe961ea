"""`manage.py sharding_erase TYPE ID`: erase one entity's history, as for an erasure request."""

import asyncio
from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.db.models import Value
from django.db.models.functions import Replace

from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.deletion import NodesAlive, count_entity, erase_entity, scrub_tables
from sharding_app.management.deletion_command import DeletionCommand, amount, counts
from sharding_app.management.operator_command import refused, signed
from sharding_app.management.progress import Progress
from sharding_app.operations.connectivity import joined, trouble
from sharding_app.operations.console import counted
from sharding_app.operations.diagnosis.read_journal import shard_by_id
from sharding_app.ports.journal import Erasure
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.messages import OperatorRequest, ReplyCode
from sharding_app.protocol.records import Member, TypeConfig
from sharding_app.runtime.node.process import Process
from sharding_app.wiring import new_loop

AGAIN_SECONDS = 0.2
ANSWER_SECONDS = 15.0
AGAIN = frozenset((ReplyCode.BUSY, ReplyCode.AWAY))
"""A home that answers so can be asked again in a moment."""
NO_ANSWER = (
    "Its node {} does not answer. The entity may have been erased or not: "
    "check with --dry-run, and try again."
)


class Command(DeletionCommand):
    help = (
        "Erase one entity permanently: its events, snapshots, remembered id, messages and timers. If the node of its\n"
        "shard is alive, that node erases it: it stops the entity first, and later messages start an entity without\n"
        "a history. Messages of other entities to it are theirs, and stay.\n"
        "The timeline records the type, not the id. Backups are not changed.\n\n"
        "Examples:\n"
        "  manage.py sharding_erase shop.Cart alice --dry-run     report the rows that would be erased\n"
        "  manage.py sharding_erase shop.Cart alice               ask, then erase\n"
        "  manage.py sharding_erase shop.Cart alice --yes --json  for scripts\n\n"
        "Exit codes: 0 done, 1 refused or nothing is stored, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("type", metavar="TYPE", help="name of the type, such as shop.Cart")
        parser.add_argument("id", metavar="ID", help="id of the entity")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--scrub", action="store_true",
            help="also remove the id from the admin's history and from the planner's statistics")  # fmt: skip
        parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS",
            help="give up after N seconds without progress, if the entity is busy or moves (default: 30)")  # fmt: skip

    def work(self, options: dict[str, Any]) -> None:
        name, entity = options["type"], options["id"]
        if options["timeout"] <= 0:
            raise refused("--timeout must be greater than 0.")
        if options["dry_run"]:
            found = self._counted(name, entity)
            self.say(f"Would be erased: {amount(found)}.")
        else:
            question = ""
            if not options["yes"]:
                question = f"Erase {amount(self._counted(name, entity))} of {name} {entity!r} permanently?"
            self.sure(question, yes=options["yes"], word="erase")
            found = self._erase(name, entity, options["timeout"])
            if options["scrub"]:
                self.say(f"Scrubbed: {counted(self._scrub(name, entity), 'line')} of the admin's history.")
        self.result(dry_run=options["dry_run"], erased=counts(found))

    def _counted(self, name: str, entity: str) -> Erasure:
        found = self.on_database(lambda where: count_entity(where, name, entity))
        self._something(found, name, entity)
        return found

    def _scrub(self, name: str, entity: str) -> int:
        """Remove the id from the admin's history and the statistics; return the number of lines."""
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
            raise refused(f"Nothing is stored for {name} {entity!r}.")

    def _erase(self, name: str, entity: str, timeout: float) -> Erasure:
        """Erase it in the database if its home is dead, otherwise through its home."""
        progress = Progress(self.stderr, quiet=self.as_json)
        by = signed("sharding_erase")

        def erase(where: Conninfo) -> Erasure | None:
            try:
                return erase_entity(
                    where, name, entity, by, lambda done: progress(f"{done.events} events erased")
                )
            except NodesAlive:
                return None

        found = self.on_database(erase)
        if found is None:
            home, found = self._ask_home(name, entity, timeout, progress)
            progress.done()
            self.say(f"Erased by its node {home}: {amount(found)}.")
        else:
            progress.done()
            self._something(found, name, entity)
            self.say(f"Erased: {amount(found)}.")
        return found

    # -- At its home -------------------------------------------------------------------------------

    def _ask_home(self, name: str, entity: str, timeout: float, progress: Progress) -> tuple[str, Erasure]:
        """Have its home erase it; return the home's name and the counts."""
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
        deadline = loop.time() + timeout
        reached: tuple[ReplyCode, dict[str, int]] | None = None
        try:
            shard = await self._shard(process, name, entity)
            while True:
                home = await self._home(process, name, shard)
                request = OperatorRequest(0, "erase", name, shard, entity, by=signed("sharding_erase"))
                answer = await process.queries.operate(home.incarnation, request, ANSWER_SECONDS)
                if answer is not None and answer.ok:
                    counts = answer.counts
                    return home.name, Erasure(
                        counts["events"],
                        counts["snapshots"],
                        counts["remembered"],
                        counts.get("messages", 0),
                    )
                text = NO_ANSWER.format(home.name) if answer is None else answer.text
                state = None if answer is None else (answer.code, answer.counts)
                if state != reached:  # it gets on: the time limit is for one that does not
                    deadline, reached = loop.time() + timeout, state
                if (answer is not None and answer.code not in AGAIN) or loop.time() >= deadline:
                    raise refused(text)
                progress(text)
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
                f"The code of {name} is not installed here, so its shard is unknown. Run this command where "
                "the code is installed, or stop the cluster first: manage.py sharding_shutdown --all"
            )
        return shard

    async def _home(self, process: Process, name: str, shard: int) -> Member:
        """Return the node that is the shard's home now."""
        store = process.ports.store
        rows = await store.homes(name, [shard])
        _, members = await store.members()
        home = next((each for row in rows for each in members if each.incarnation == row.home), None)
        if home is None:
            raise refused(
                "Its rows belong to a shard of a live node that is not its home. Stop the cluster first: "
                "manage.py sharding_shutdown --all"
            )
        return home
