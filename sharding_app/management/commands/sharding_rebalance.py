"""`manage.py sharding_rebalance`: balance shards now, move one, or pause rebalancing."""

import asyncio
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sharding_app.management.base import seconds
from sharding_app.management.operator_command import OperatorCommand, refused, signed
from sharding_app.management.progress import Progress
from sharding_app.operations.connectivity import joined
from sharding_app.operations.console import counted
from sharding_app.protocol.messages import Coordination, OperatorReply, OperatorRequest, ReplyCode
from sharding_app.protocol.records import Member, ShardRow
from sharding_app.runtime.node.process import Process
from sharding_app.wiring import new_loop

LOOK_SECONDS = 0.25
ANSWER_SECONDS = 2.0
QUIET_LOOKS = 3
"""Rounds follow each other quickly: rebalancing is over when nothing moved in this many looks."""

Homes = Mapping[tuple[str, int], ShardRow]


class Command(OperatorCommand):
    help = (
        "Ask the coordinator to balance shards now, to move one shard, or to pause rebalancing. Messages to a moving\n"
        "shard wait, for some milliseconds. Nothing is balanced while a node joins or leaves, or versions are mixed.\n\n"
        "Examples:\n"
        "  manage.py sharding_rebalance                    balance all types now\n"
        "  manage.py sharding_rebalance shop.Cart --wait   balance one type, and wait until no shard moves\n"
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
        parser.add_argument("--to", default="", metavar="NODE", help="name of the node to move it to")
        either = parser.add_mutually_exclusive_group()
        either.add_argument("--pause", action="store_true", help="pause rebalancing")
        either.add_argument("--resume", action="store_true", help="end the pause")
        parser.add_argument("--wait", action="store_true", help="wait until the moves are complete")
        parser.add_argument("--timeout", type=seconds, default=60.0, metavar="SECONDS",
            help="wait at most N seconds (default: 60); moves continue after that")  # fmt: skip

    def work(self, options: dict[str, Any]) -> None:
        moves = options["shard"] is not None
        if moves != bool(options["to"]) or (moves and not options["type"]):
            raise refused("To move a shard, give TYPE, --shard and --to.")
        if (options["pause"] or options["resume"]) and (options["type"] or options["wait"]):
            raise refused("--pause and --resume apply to all types: give no TYPE and no --wait.")
        if options["timeout"] <= 0:
            raise refused("--timeout must be greater than 0.")
        self._progress = Progress(self.stderr, quiet=self.as_json)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            try:
                runner.run(self._run(options))
            finally:
                self._progress.done()

    async def _run(self, options: dict[str, Any]) -> None:
        async with joined() as process:
            self._deadline = asyncio.get_running_loop().time() + options["timeout"]
            if options["pause"] or options["resume"]:
                await self._pause(process, pause=options["pause"])
            elif options["to"]:
                await self._move(process, options)
            else:
                await self._rebalance(process, options)

    async def _pause(self, process: Process, *, pause: bool) -> None:
        """Pause or resume; succeed if it is so already, so that scripts can repeat it."""
        found = await self._coordination(process)
        if found is not None and found.rebalancing is not pause:
            text = "Rebalancing is already paused." if pause else "Rebalancing is not paused."
        else:
            text = await self._ask_coordinator(process, OperatorRequest(0, "pause" if pause else "resume"))
        self.say(text)
        self.result(rebalancing=not pause, text=text)

    async def _move(self, process: Process, options: dict[str, Any]) -> None:
        name, shard = options["type"], options["shard"]
        _, members = await process.ports.store.members()
        target = _node(members, options["to"])
        (row,) = await self._rows(process, name, shard)
        if row.home == target.incarnation and row.step == "home":
            self.say(f"Shard {shard} of {name} is already on {target.name}.")
            self.result(moved=0, home=target.name)
            return
        text = await self._ask_coordinator(
            process, OperatorRequest(0, "move", name, shard, target=target.incarnation)
        )
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
                text = f"Shard {shard} of {name} moved to another node: "
                if now.epoch == row.epoch + 1:
                    raise refused(f"{text}{target.name} could no longer take it.")
                raise refused(f"{text}it moved more than once. To keep it on {target.name}, --pause first.")
            return now.home == target.incarnation and now.step == "home"

        await self._until(arrived, f"Shard {shard} of {name} has not arrived")
        self._progress.done()
        self.say(f"Shard {shard} of {name} is on {target.name}.")
        self.result(moved=1, home=target.name)

    async def _rebalance(self, process: Process, options: dict[str, Any]) -> None:
        name = options["type"]
        if name and name not in await process.ports.store.type_ids():
            raise refused(f"The cluster knows no type {name!r}.")
        before = await self._homes(process)
        text = await self._ask_coordinator(process, OperatorRequest(0, "rebalance", name))
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

        await self._until(settled, "Shards have not stopped moving")
        moved = _moved(before, await self._homes(process))
        self._progress.done()
        self.say(f"{counted(moved, 'shard')} moved.")
        self.result(moved=moved, text=text)

    # -- Asking ------------------------------------------------------------------------------------

    async def _ask_coordinator(self, process: Process, request: OperatorRequest) -> str:
        """Ask the coordinator, or the next one if it changes; return its answer."""
        request.by = signed("sharding_rebalance")
        loop = asyncio.get_running_loop()
        while True:
            leader = await self._leader(process)
            answer: OperatorReply | None = None
            if leader is not None:
                answer = await process.queries.operate(leader, request)
                if answer is None:
                    raise refused(
                        "No answer in time. The request may have been carried out or not: check before you try again."
                    )
                if answer.ok:
                    return answer.text
                if answer.code is not ReplyCode.NOT_COORDINATOR:
                    raise refused(answer.text)
            if loop.time() >= self._deadline:
                raise refused("There is no coordinator now. Is a node up? See sharding_status.")
            self._progress("waiting for a coordinator")
            await asyncio.sleep(LOOK_SECONDS)

    async def _leader(self, process: Process) -> str | None:
        leader = (await process.ports.store.coordinator()).incarnation
        _, members = await process.ports.store.members()
        if not members:
            raise refused("No node is running: start `manage.py sharding_node`.")
        return leader if any(each.incarnation == leader for each in members) else None

    async def _coordination(self, process: Process) -> Coordination | None:
        leader = await self._leader(process)
        found = {} if leader is None else await process.queries.stats([leader], ANSWER_SECONDS)
        return next((each.coordination for each in found.values()), None)

    async def _homes(self, process: Process) -> Homes:
        return {(row.type, row.shard): row for row in await process.ports.store.shards()}

    async def _rows(self, process: Process, name: str, shard: int) -> list[ShardRow]:
        rows = await process.ports.store.homes(name, [shard])
        if not rows:
            raise refused(f"Shard {shard} of {name} has no home yet: it gets one with its first message.")
        return rows

    async def _until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        loop = asyncio.get_running_loop()
        while not await condition():
            if loop.time() >= self._deadline:
                raise refused(f"{what} in time. Moves continue; sharding_status shows their state.")
            await asyncio.sleep(LOOK_SECONDS)


def _node(members: list[Member], name: str) -> Member:
    found = [each for each in members if name in (each.name, each.incarnation)]
    if len(found) > 1:
        each = ", ".join(member.incarnation for member in found)
        raise refused(f"{len(found)} nodes are named {name}. Give the incarnation of one: {each}.")
    if not found:
        there = ", ".join(each.name for each in members) or "none"
        raise refused(f"There is no node {name} (nodes: {there}).")
    return found[0]


def _moved(before: Homes, now: Homes) -> int:
    return sum(row.home != before[key].home for key, row in now.items() if key in before)
