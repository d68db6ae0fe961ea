"""The load: a process of its own that calls entities at a steady rate, and records each outcome.

It obeys lines on its standard input, and answers each with one line when it is done:

`warm`                       call every entity once, and measure the rate that can be carried
`go`                         begin
`probe a,b,c`                one append to each, at once
`halt`                       stop the rate, wait for the calls under way, return the share of the
                             rate that was begun
`sweep`                      read every entity
`round n`                    go on with entities of their own, and a file of their own
`oldest`                     return the time at which the oldest call under way began, or `none`
`unexpected`                 return the number of replies that no caller waited for
`late entity seconds`        an append that waits before it writes
`stall entity seconds`       let the entity hold its node's event loop
`swell entity megabytes`     let the entity ask for memory

When its input ends, it ends. The rate does not wait for answers, so an outage does not hide: each
entity is called in it, and many of them often. The rate is no more than the machine can carry,
which may be busy with other things as well, and more so from one second to the next: no judge could
tell a call that waits behind ever more calls from a lost one.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from sharding_app import (
    AskTimeout,
    BufferFull,
    PartiallyApplied,
    Rejected,
    ShardingError,
    SingletonProxy,
    Unavailable,
    wiring,
)
from sharding_app.torture.entities import Tick
from sharding_app.torture.history import PATIENT_SECONDS, Call, Op, Outcome, write_line
from sharding_app.torture.payments import Payments

TICK_SECONDS = 0.01
SINGLETON_SECONDS = 0.1
HASTY_SECONDS = 0.4
MAX_ATTEMPTS = 5
MOST_OF_ONE = 10
"""Calls under way to one entity. It handles one at a time: with more it may never catch up."""
MOST_SECONDS = 6.0
"""Calls under way to all, as seconds of the rate. Where the machine has become busier since it was
measured, the cluster would never catch up with more. Entities without a call get one all the same.
"""
TRIED_SECONDS = 1.0
"""Time of calls at the full rate by which the load measures what the cluster can carry."""
LATE_SECONDS = 0.25
"""Where the last of these calls is answered later than this, the rate is too high. It is also too
high while half of the calls that are answered in a second took longer.
"""
FITTED_SECONDS = 1.0
"""Time after which the rate is fitted to the answers again."""
LEAST_FITTED = 0.1
"""Least part of the rate that was carried at first."""
NOT_TAKEN = {"buffer_full", "no_host", "stopped"}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rate", type=float, default=300.0)
    parser.add_argument("--share", type=float, default=1.0, help="of the rates, until `warm` measures it")
    parser.add_argument("--entities", type=int, default=1000)
    parser.add_argument(
        "--hot", type=int, default=20, help="the number of entities that get a fifth of the calls"
    )
    parser.add_argument("--only-reads", type=int, default=0)
    parser.add_argument("--patience", type=float, default=PATIENT_SECONDS, help="how long most callers wait")
    parser.add_argument("--process", type=int, default=1)
    parser.add_argument("--payments", type=float, default=0.0, help="orders to accounts, each second")
    return parser.parse_args(arguments)


def entities_of(round_number: int, count: int) -> list[str]:
    """Return the names of a round's entities."""
    return [f"r{round_number}e{number}" for number in range(count)]


def round_file(out: Path, round_number: int) -> Path:
    return out.with_stem(f"{out.stem}-{round_number}") if round_number else out


def share_of(late: float) -> float:
    """Return the share of the full rate that the cluster can carry, and half of its work to spare.

    `late`: seconds from the end of the calls at the full rate to the last of their answers.
    """
    return 1.0 if late <= LATE_SECONDS else TRIED_SECONDS / (TRIED_SECONDS + late) / 2


def fitted(part: float, took: Sequence[float]) -> float:
    """Return the part of the carried rate for the next second, given how long the calls took that
    were answered in this one.
    """
    if not took:
        return part
    return max(part * 0.7, LEAST_FITTED) if statistics.median(took) > LATE_SECONDS else min(part * 1.3, 1.0)


def payments_file(out: Path) -> Path:
    """Return the file of the orders to accounts beside the history of a round."""
    return out.with_name(f"payments-{out.name}")


class Load:
    def __init__(
        self, options: argparse.Namespace, register: Any, ticker: SingletonProxy, account: Any = None
    ) -> None:
        """`register` is the class of the entities that are called, `ticker` the singleton's proxy,
        `account` the class of the accounts.
        """
        self.register = register
        self.ticker, self.tick = ticker, Tick()
        self.options = options
        self.chance = random.Random(options.seed)
        self.numbers = 0
        self.share = options.share
        self.part = 1.0
        "The part of this share that fits beside the machine's other work of these seconds."
        self.running = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.under_way: dict[int, float] = {}
        "When each call began, by its number."
        self.by_entity = Counter[str]()
        "Calls under way."
        self.took: list[float] = []
        "How long calls took that were answered lately."
        self.begun = 0
        "Calls since the rate began."
        self.went = time.monotonic()
        "When the rate began."
        self.asked = 1.0
        "The share of the full rate that was begun, as of the last halt."
        self.payments = Payments(account, options.seed, options.process, options.patience)
        self.new_round(0)

    def new_round(self, number: int) -> None:
        out: Path = self.options.out
        self.entities = entities_of(number, self.options.entities)
        file = round_file(out, number)
        self.file = file.open("ab", buffering=0)
        self.payments.new_round(number, payments_file(file))

    async def call(
        self,
        entity: str,
        op: Op,
        patience: float = 0.0,
        *,
        own_id: bool = False,
        late: float = 0.0,
    ) -> Call:
        """Make one call and record it.

        With an id of its own it is repeated while its outcome is unknown.
        """
        self.numbers = number = self.numbers + 1
        token = "" if op.startswith("read") else f"{self.options.process}.{number}"
        call = Call(
            process=self.options.process, number=number, entity=entity, op=op, token=token, start=time.monotonic(),
            outcome="unknown", command_id=f"id-{token}" if own_id else "",
        )  # fmt: skip
        if op == "tell":
            self.register.ref(entity).append.tell(token)
            call.outcome = "told"
        else:
            self.under_way[number] = call.start
            self.by_entity[entity] += 1
            await self._ask(call, patience or self.options.patience, late)
            self.by_entity[entity] -= 1
            del self.under_way[number]
            if call.outcome == "ok":
                self.took.append(time.monotonic() - call.start)
        call.end = time.monotonic()
        self.file.write(write_line(call))
        return call

    async def _ask(self, call: Call, patience: float, late: float) -> None:
        while True:
            ref = self.register.ref(call.entity, timeout=patience, command_id=call.command_id or None)
            method = getattr(ref, "append_late" if late else call.op)
            arguments = [each for each in (call.token, late) if each]
            await self._settle(call, method(*arguments))
            if (
                not call.command_id
                or call.outcome not in ("unknown", "refused")
                or call.attempts >= MAX_ATTEMPTS
            ):
                return
            call.attempts += 1

    @staticmethod
    async def _settle(call: Call, answer: Awaitable[list[int]]) -> None:
        call.timed_out = False
        try:
            count, digest = await answer
        except Rejected:
            call.outcome = "rejected"
        except (AskTimeout, PartiallyApplied) as error:
            call.outcome, call.error = "unknown", f"{type(error).__name__}: {error}"
            call.timed_out = isinstance(error, AskTimeout)
        except (BufferFull, Unavailable) as error:
            taken: Outcome = "refused" if error.code in NOT_TAKEN else "unknown"
            # An earlier attempt of the same command may have had an effect.
            call.outcome = taken if call.attempts == 1 else "unknown"
            call.error = f"{error.code}: {error}"
        except ShardingError as error:
            call.outcome, call.error = "failed", f"{type(error).__name__}: {error}"
        else:
            call.outcome, call.value, call.error = "ok", (count, digest), ""

    def start(self, job: Any) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            print(f"the load itself failed: {error!r}", file=sys.stderr, flush=True)
            os._exit(3)

    async def steadily(self, rate: float, begin: Callable[[], int]) -> None:
        """Begin calls at a rate, whatever their outcome. `begin` returns how many were due."""
        looked, due = time.monotonic(), 0.0
        while self.running:
            now = time.monotonic()
            due += (now - looked) * rate * self.share * self.part
            looked = now
            while due >= 1.0:
                due -= begin()
            await asyncio.sleep(TICK_SECONDS)

    async def fit(self) -> None:
        """Call less often while answers are late, and then more often again."""
        while self.running:
            self.took.clear()
            await asyncio.sleep(FITTED_SECONDS)
            self.part = fitted(self.part, self.took)

    async def lateness(self) -> float:
        """Call at the full rate for a while; return how late the last answer is."""
        self.running = True
        self.start(self.steadily(self.options.rate, self.one_choice))
        await asyncio.sleep(TRIED_SECONDS)
        self.running = False
        due = time.monotonic()
        while self.tasks:
            await asyncio.wait(list(self.tasks))
        return time.monotonic() - due

    def pay(self) -> int:
        """Begin one order to accounts."""
        self.start(self.payments.next())
        return 1

    async def call_the_singleton(self) -> None:
        """Call the singleton, without waiting for answers: only its single life is checked."""
        while self.running:
            self.ticker.tell(self.tick)
            await asyncio.sleep(SINGLETON_SECONDS)

    def one_choice(self) -> int:
        """Begin one call, or a few in a row for one entity; return how many were due."""
        chance = self.chance
        hot = chance.random() < 0.2
        entity = self.entities[chance.randrange(self.options.hot if hot else len(self.entities))]
        most = MOST_SECONDS * self.options.rate * self.share
        already = self.by_entity[entity]
        if already >= MOST_OF_ONE or (already and len(self.under_way) >= most):
            return 1
        self.begun += 1
        dice = 0.7 if self.options.only_reads else chance.random()
        if dice < 0.50:
            hasty = chance.random() < 0.05
            self.start(self.call(entity, "append", HASTY_SECONDS if hasty else 0.0))
        elif dice < 0.60:
            self.start(
                self.call(
                    entity,
                    "append",
                    HASTY_SECONDS if chance.random() < 0.5 else self.options.patience / 4,
                    own_id=True,
                )
            )
        elif dice < 0.85:
            self.start(self.call(entity, "read"))
        elif dice < 0.88:
            self.start(self.call(entity, "read_surely"))
        elif dice < 0.91:
            self.start(self.call(entity, "refuse"))
        elif dice < 0.94:
            self.start(self.call(entity, "tell"))
        else:
            for _ in range(3):
                self.start(self.call(entity, "append"))
            self.begun += 2
            return 3
        return 1

    # -- Orders ------------------------------------------------------------------------------------

    async def obey(self, line: str) -> str:  # noqa: C901  (one case for each order)
        word, _, rest = line.partition(" ")
        match word:
            case "warm":
                calls = await asyncio.gather(*(self.call(each, "append") for each in self.entities))
                self.share = share_of(await self.lateness())
                bad = [each for each in calls if each.outcome != "ok"]
                return f"warm {len(bad)} {self.share:.3f} {bad[0].error if bad else ''}"
            case "go":
                self.running = True
                self.part, self.begun, self.went = 1.0, 0, time.monotonic()
                self.start(self.steadily(self.options.rate, self.one_choice))
                self.start(self.fit())
                self.start(self.call_the_singleton())
                if self.options.payments:
                    self.start(self.steadily(self.options.payments, self.pay))
                return "going"
            case "probe":
                for entity in rest.split(","):
                    self.start(self.call(entity, "append"))
                return "probing"
            case "halt":
                if self.running:
                    full = self.options.rate * (time.monotonic() - self.went)
                    self.asked = min(1.0, self.begun / max(full, 1.0))
                self.running = False
                while self.tasks:
                    await asyncio.wait(list(self.tasks))
                return f"halted {self.asked:.3f}"
            case "round":
                self.new_round(int(rest))
                return "new round"
            case "oldest":
                return f"oldest {min(self.under_way.values(), default='none')}"
            case "unexpected":
                process = wiring.portal().process
                return f"unexpected {'?' if process is None else process.region_client.unexpected}"
            case "late":
                entity, seconds = rest.split()
                self.start(self.call(entity, "append", late=float(seconds)))
                return "begun"
            case "stall":
                entity, seconds = rest.split()
                self.register.ref(entity).stall.tell(float(seconds))
                return "stalling"
            case "swell":
                entity, megabytes = rest.split()
                self.register.ref(entity).swell.tell(int(megabytes))
                return "swelling"
            case "sweep":
                calls = await asyncio.gather(*(self.call(each, "read") for each in self.entities))
                return f"swept {sum(each.outcome != 'ok' for each in calls)}"
        return f"unknown order {word}"


async def run_load(
    options: argparse.Namespace, register: Any, ticker: SingletonProxy, account: Any = None
) -> None:
    """Run the process itself."""
    load = Load(options, register, ticker, account)
    orders = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(orders)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := (await orders.readline()).decode().strip():
        print(await load.obey(line), flush=True)
    os._exit(0)
