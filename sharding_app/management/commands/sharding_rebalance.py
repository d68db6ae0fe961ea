"""`manage.py sharding_rebalance`: ask the coordinator to balance shards now, to move one, or to leave them where they are."""

import asyncio
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sharding_app.bootstrap import new_loop
from sharding_app.core.messages import Coordination, Steer, Steered
from sharding_app.core.records import Member, ShardRow
from sharding_app.management.console import counted
from sharding_app.management.operating import OperatorCommand, refused, signed
from sharding_app.management.progress import Progress
from sharding_app.management.reach import joined, trouble
from sharding_app.ports.store import StoreUnavailable
from sharding_app.runtime.process import Process

LOOK_SECONDS = 0.25
ANSWER_SECONDS = 2.0
QUIET_LOOKS = 3
"""A round follows the one before within moments: it is over when nothing has moved for this number of looks."""

Homes = Mapping[tuple[str, int], ShardRow]


class Command(OperatorCommand):
    help = (
        "Ask the coordinator to balance shards now, to move a shard, or to pause rebalancing. What moves is away for some\n"
        "milliseconds: its messages wait. Nothing is balanced while a node joins or leaves, or while versions are mixed.\n\n"
        "Examples:\n"
        "  manage.py sharding_rebalance                    one round of all types now\n"
        "  manage.py sharding_rebalance shop.Cart --wait   of one type, and wait until nothing moves any more\n"
        "  manage.py sharding_rebalance shop.Cart --shard 17 --to node-2 --wait\n"
        "  manage.py sharding_rebalance --pause            until --resume, or until another coordinator is elected\n\n"
        "Exit codes: 0 done, 1 refused or not finished in time, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "type", nargs="?", default="", metavar="TYPE", help="name of a type (default: all types)"
        )
        parser.add_argument("--shard", type=int, metavar="S", help="with TYPE and --to: move this shard")
        parser.add_argument("--to", default="", metavar="NODE", help="the node that is to take it, by name")
        either = parser.add_mutually_exclusive_group()
        either.add_argument("--pause", action="store_true", help="move nothing for balance any more")
        either.add_argument("--resume", action="store_true", help="take --pause back")
        parser.add_argument("--wait", action="store_true", help="wait until what was asked for has happened")
        parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS",
            help="try, and wait, for N seconds (default: 60); what moves goes on after that")  # fmt: skip

    def work(self, options: dict[str, Any]) -> None:
        moves = options["shard"] is not None
        if moves != bool(options["to"]) or (moves and not options["type"]):
            raise refused("To move a shard, say TYPE, --shard and --to.")
        if (options["pause"] or options["resume"]) and (options["type"] or options["wait"]):
            raise refused("--pause and --resume are for all types, and need no --wait.")
        if options["timeout"] <= 0:
            raise refused("--timeout needs a number of seconds greater than 0.")
        self._progress = Progress(self.stderr, quiet=self.as_json)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            try:
                runner.run(self._run(options))
            finally:
                self._progress.done()

    async def _run(self, options: dict[str, Any]) -> None:
        process = await joined()
        self._deadline = asyncio.get_running_loop().time() + options["timeout"]
        try:
            if options["pause"] or options["resume"]:
                await self._pause(process, pause=options["pause"])
            elif options["to"]:
                await self._move(process, options)
            else:
                await self._rebalance(process, options)
        except StoreUnavailable as error:
            raise trouble(error) from error
        finally:
            await process.close()

    async def _pause(self, process: Process, *, pause: bool) -> None:
        """Asked for what is so already, it is content: scripts may repeat themselves."""
        found = await self._coordination(process)
        if found is not None and found.rebalancing is not pause:
            text = "Rebalancing is paused already." if pause else "Rebalancing is not paused."
        else:
            text = await self._steer(process, Steer(0, "pause" if pause else "resume"))
        self.say(text)
        self.result(rebalancing=not pause, text=text)

    async def _move(self, process: Process, options: dict[str, Any]) -> None:
        name, shard = options["type"], options["shard"]
        _, members = await process.ports.store.members()
        target = _node(members, options["to"])
        (row,) = await self._rows(process, name, shard)
        if row.home == target.incarnation and row.step == "home":
            self.say(f"Shard {shard} of {name} lives on {target.name} already.")
            self.result(moved=0, home=target.name)
            return
        text = await self._steer(process, Steer(0, "move", name, shard, target=target.incarnation))
        self.say(text)
        if not options["wait"]:
            self.result(asked=True, text=text)
            return

        async def arrived() -> bool:
            (now,) = await self._rows(process, name, shard)
            self._progress(
                f"shard {shard} of {name}: {'handed over' if now.step == 'handoff' else 'starting'}"
            )
            if now.epoch > row.epoch and now.step == "home" and now.home != target.incarnation:
                raise refused(
                    f"Shard {shard} of {name} went elsewhere: {target.name} could not take it any more."
                )
            return now.home == target.incarnation and now.step == "home"

        await self._until(arrived, f"Shard {shard} of {name} has not arrived")
        self._progress.done()
        self.say(f"Shard {shard} of {name} lives on {target.name}.")
        self.result(moved=1, home=target.name)

    async def _rebalance(self, process: Process, options: dict[str, Any]) -> None:
        name = options["type"]
        if name and name not in await process.ports.store.type_ids():
            raise refused(f"The cluster knows no type {name!r}.")
        before = await self._homes(process)
        text = await self._steer(process, Steer(0, "rebalance", name))
        self.say(text)
        if not options["wait"]:
            self.result(asked=True, text=text)
            return
        quiet = 0

        async def settled() -> bool:
            nonlocal quiet
            found, now = await self._coordination(process), await self._homes(process)
            moving = sum(row.step == "handoff" for row in now.values())
            under_way = 1 if found is None else found.handing_off + found.queued + found.starting
            self._progress(
                f"{counted(_moved(before, now), 'shard')} moved, {max(moving, under_way)} on the way"
            )
            quiet = 0 if moving or under_way else quiet + 1
            return quiet >= QUIET_LOOKS

        await self._until(settled, "Shards still move")
        moved = _moved(before, await self._homes(process))
        self._progress.done()
        self.say(f"{counted(moved, 'shard')} moved.")
        self.result(moved=moved, text=text)

    # -- Asking ----------------------------------------------------------------------------------------------------

    async def _steer(self, process: Process, wish: Steer) -> str:
        """Ask the coordinator, and the next one if that has changed meanwhile; return its answer."""
        wish.by = signed("sharding_rebalance")
        loop = asyncio.get_running_loop()
        while True:
            leader = await self._leader(process)
            answer: Steered | None = None
            if leader is not None:
                answer = await process.questions.steer(leader, wish)
                if answer is None:
                    raise refused(
                        "No answer in time. It may have been done or not: look before you try again."
                    )
                if answer.ok:
                    return answer.text
                if not answer.text.startswith("This node does not coordinate"):
                    raise refused(answer.text)
            if loop.time() >= self._deadline:
                raise refused("There is no coordinator now: is a node up? See sharding_status.")
            self._progress("waiting for a coordinator")
            await asyncio.sleep(LOOK_SECONDS)

    async def _leader(self, process: Process) -> str | None:
        leader = (await process.ports.store.coordinator()).incarnation
        _, members = await process.ports.store.members()
        if not members:
            raise refused("No node is there: start `manage.py sharding_node`.")
        return leader if any(each.incarnation == leader for each in members) else None

    async def _coordination(self, process: Process) -> Coordination | None:
        leader = await self._leader(process)
        found = {} if leader is None else await process.questions.stats([leader], ANSWER_SECONDS)
        return next((each.coordination for each in found.values()), None)

    async def _homes(self, process: Process) -> Homes:
        return {(row.type, row.shard): row for row in await process.ports.store.shards()}

    async def _rows(self, process: Process, name: str, shard: int) -> list[ShardRow]:
        rows = await process.ports.store.homes(name, [shard])
        if not rows:
            raise refused(
                f"Shard {shard} of {name} lives nowhere: it gets a home when a message comes for it."
            )
        return rows

    async def _until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        loop = asyncio.get_running_loop()
        while not await condition():
            if loop.time() >= self._deadline:
                raise refused(f"{what} in time. It goes on; sharding_status shows how far.")
            await asyncio.sleep(LOOK_SECONDS)


def _node(members: list[Member], name: str) -> Member:
    found = [each for each in members if name in (each.name, each.incarnation)]
    if len(found) > 1:
        each = ", ".join(member.incarnation for member in found)
        raise refused(f"{len(found)} nodes are called {name}: say which one by its incarnation ({each}).")
    if not found:
        there = ", ".join(each.name for each in members) or "none"
        raise refused(f"There is no node {name} (there are: {there}).")
    return found[0]


def _moved(before: Homes, now: Homes) -> int:
    return sum(row.home != before[key].home for key, row in now.items() if key in before)
