"""`manage.py sharding_shutdown`: stop nodes, or the whole cluster, in order, and wait for the
end.
"""

import asyncio
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from sharding_app.management.base import seconds
from sharding_app.management.operator_command import OperatorCommand, refused, signed
from sharding_app.models import Decision
from sharding_app.operations.connectivity import joined
from sharding_app.operations.console import counted
from sharding_app.ports.store import ClusterStore
from sharding_app.protocol.records import LeaveRequest, Member
from sharding_app.settings.load import get_settings
from sharding_app.wiring import new_loop

LOOK_SECONDS = 0.25
NOTED_LOOKS = 8
"Looks for the line of the timeline about a node that has ended unseen."


class Command(OperatorCommand):
    help = (
        "Stop nodes in order: each hands its shards to the others and ends. With --all the whole cluster stops:\n"
        "nothing is handed over or rebalanced, and entities get their stop message.\n\n"
        "Examples:\n"
        "  manage.py sharding_shutdown node-2             stop one node; a supervisor may restart it\n"
        "  manage.py sharding_shutdown --all --timeout 120\n"
        "  manage.py sharding_shutdown --all --prepare    move no shards from now on; then stop the nodes in any order\n"
        "  manage.py sharding_shutdown --all --cancel     undo --prepare\n\n"
        "Exit codes: 0 done, 1 refused or not finished in time, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "nodes", nargs="*", metavar="NODE", help="names of nodes, as sharding_status shows them"
        )
        parser.add_argument("--all", action="store_true", help="stop the whole cluster")
        parser.add_argument("--prepare", action="store_true", help="with --all: only stop moving shards")
        parser.add_argument("--cancel", action="store_true", help="with --all: undo --prepare")
        parser.add_argument("--timeout", type=seconds, default=60.0, metavar="SECONDS",
            help="wait at most N seconds for their end (default: 60); they continue to leave after that")  # fmt: skip

    def work(self, options: dict[str, Any]) -> None:
        everything = options["all"]
        if everything == bool(options["nodes"]):
            raise refused("Name the nodes to stop, or add --all.")
        if (options["prepare"] or options["cancel"]) and not everything:
            raise refused("--prepare and --cancel apply to the whole cluster: add --all.")
        if options["prepare"] and options["cancel"]:
            raise refused("Give --prepare or --cancel, not both.")
        if options["timeout"] <= 0:
            raise refused("--timeout must be greater than 0.")
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._run(options))

    async def _run(self, options: dict[str, Any]) -> None:
        async with joined() as process:
            await self._shut_down(process.ports.store, options)

    async def _shut_down(self, store: ClusterStore, options: dict[str, Any]) -> None:
        _, members = await store.members()
        chosen = _chosen(members, options["nodes"])
        names = [each.name for each in chosen]
        if not chosen:
            self.say("No node is running.")
            self.result(left=[])
            return
        request: LeaveRequest | None = "leave"
        if options["all"]:
            request = None if options["cancel"] else "prepare" if options["prepare"] else "stop"
        await store.ask_to(request, [each.incarnation for each in chosen], signed("sharding_shutdown"))
        if request in (None, "prepare"):
            self.say(
                "Shards may move again."
                if request is None
                else "No shard moves until the cluster has stopped."
            )
            self.result(asked=names)
            return
        left, unheard = await self._watch(store, chosen, options["timeout"])
        if left:
            waited = f"within {options['timeout']:g} s"
            raise refused(
                f"Not gone {waited}: {', '.join(left)}. They continue to leave; sharding_status shows their state."
            )
        dead = await _declared_dead(unheard)
        if dead:
            raise refused(
                f"Declared dead before they heard of this: {', '.join(each.name for each in dead)}. Their shards have moved. A"
                " process that was frozen joins again when it goes on: end it on its machine."
            )
        self.say(f"{counted(len(names), 'node')} left.")
        self.result(left=names)

    async def _watch(
        self, store: ClusterStore, chosen: Sequence[Member], timeout: float
    ) -> tuple[list[str], list[Member]]:
        """Report the progress of the nodes until all are gone; return those that are not, and those
        that were never seen to leave.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        said: dict[str, str] = {}
        leaving: set[str] = set()
        while True:
            present = {each.incarnation: each.state for each in (await store.members())[1]}
            leaving |= {incarnation for incarnation, state in present.items() if state == "leaving"}
            numbers = await store.home_counts()
            for each in chosen:
                gone = each.incarnation not in present
                number = numbers.get(each.incarnation, 0)
                text = "gone" if gone else f"{counted(number, 'shard')} left"
                if said.get(each.incarnation) != text:
                    said[each.incarnation] = text
                    self.say(f"{each.name}: {text}")
            waiting = [each.name for each in chosen if each.incarnation in present]
            if not waiting or loop.time() >= deadline:
                return waiting, [each for each in chosen if each.incarnation not in leaving]
            await asyncio.sleep(min(LOOK_SECONDS, max(0.0, deadline - loop.time())))


async def _declared_dead(nodes: Sequence[Member]) -> list[Member]:
    """Return those that the coordinator has declared dead. It notes that, or that they have left,
    behind the end of their rows; the last nodes of a cluster leave without it.
    """
    found: dict[str, str] = {}
    missing = {each.incarnation for each in nodes}
    noted = Decision.objects.using(get_settings().database).filter(action__in=("node_dead", "node_left"))
    for _ in range(NOTED_LOOKS):
        if not missing:
            break
        found |= {each.subject: each.action async for each in noted.filter(subject__in=missing)}
        missing -= found.keys()
        if missing:
            await asyncio.sleep(LOOK_SECONDS)
    return [each for each in nodes if found.get(each.incarnation) == "node_dead"]


def _chosen(members: Sequence[Member], names: Sequence[str]) -> list[Member]:
    if unknown := [
        name for name in names if all(name not in (each.name, each.incarnation) for each in members)
    ]:
        there = ", ".join(each.name for each in members) or "none"
        raise refused(f"There is no node {', '.join(unknown)} (nodes: {there}).")
    return [each for each in members if not names or each.name in names or each.incarnation in names]
