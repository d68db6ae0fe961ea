"""The registry of instances over real processes: it fails on any second live instance.

It reads the reports of instances (`torture.instances`), in the one order that these lines have over
all processes. Two rules, neither of which needs a clock:

* Once a process has started a shard, no process that was its home at a lower epoch handles anything
  in it, nor does one that has stopped it. So a former home is silent from the moment at which there
  is another one, whatever became of it.
* Once another object of an entity has handled something, the former ones never do again, in any
  process.

A process checks its lease before it handles a batch of messages, and again before an answer goes
out (promise 2). Messages past the first check when the process was frozen, or held up by a handler,
are handled afterwards, and their answers do not go out. So a line is no proof if its turn of the
event loop had begun before the other home did. The harness writes `thaws <pid>` before it continues
a process that it has frozen in such a turn: the next turn is that one.

A process whose two lifelines end at once may handle messages beside its successor until it has read
its sockets, and for `LEASE_OWN_LIMIT_SECONDS` at most (promise 2, docs/survival.md). It reads them
late when it is frozen, or when the machine is busy. The harness writes `loses <pid>` before it
freezes a process or resets its connections, `unaware <pid>` when the process goes on, and `aware
<pid>` when that time is over. Between the last two, lines about shards that moved after `loses` are
no proof.

Entities and singletons beat by timers of their own, so that an instance without callers still shows
itself. The coordinator is judged by its writes (`judge.check_coordinators`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

Shard = tuple[str, int]


class Home(NamedTuple):
    pid: int
    epoch: int
    since: int
    "Number of the line that reports it."


class Turn(NamedTuple):
    """The last turn of a process's event loop in which it has handled something."""

    number: int
    began: int
    thawed: bool


class Registry:
    """Reads on from its last position, so that a long run is judged round by round."""

    def __init__(self, shard_of: Callable[[str, str], int]) -> None:
        self._shard_of = shard_of
        self._read = 0
        self._homes: dict[Shard, Home] = {}
        self._hosted: dict[int, set[Shard]] = {}
        "Shards that each process hosts, by its own reports."
        self._objects: dict[tuple[str, str], tuple[int, int]] = {}
        self._former: dict[tuple[str, str], set[tuple[int, int]]] = {}
        self._turns: dict[int, Turn] = {}
        self._thawed: set[int] = set()
        self._lost: dict[int, int] = {}
        "Number of the line from which on each process may have lost its lifelines unheard."
        self._unaware: Counter[int] = Counter()
        "Number of faults in whose time each process may not have heard of it yet."
        self._line = 0
        self.handled = 0
        self.successions = 0
        "Number of times that another object of an entity has taken over."

    def read(self, file: Path) -> list[str]:
        """Return the mistakes in the lines written since the last call."""
        with file.open("rb") as lines:
            lines.seek(self._read)
            data = lines.read()
        whole = data.rpartition(b"\n")[0]
        self._read += len(whole) + bool(whole)
        return self.judge(whole.decode().splitlines())

    def judge(self, lines: Iterable[str]) -> list[str]:
        broken = []
        for line in lines:
            word, pid, *rest = line.split(" ")
            if wrong := self._take(word, int(pid), rest):
                broken.append(wrong)
        return broken

    def _take(self, word: str, pid: int, rest: list[str]) -> str:
        self._line += 1
        match word, rest:
            case "thaws", []:
                self._thawed.add(pid)
            case "loses", []:
                if not self._unaware[pid]:
                    self._lost[pid] = self._line
            case "unaware", []:
                self._unaware[pid] += 1
            case "aware", []:
                self._unaware[pid] -= 1
            case "starts", [type_name, number, epoch]:
                self._starts(pid, (type_name, int(number)), int(epoch))
            case "stops", [type_name, number, _]:
                self._hosted.get(pid, set()).discard((type_name, int(number)))
            case "handles", [turn, number, type_name, entity]:
                return self._handles(pid, self._turn(pid, int(turn)), int(number), type_name, entity)
            case _:
                return f"nothing known is said by: {word} {rest}"
        return ""

    def _starts(self, pid: int, shard: Shard, epoch: int) -> None:
        self._hosted.setdefault(pid, set()).add(shard)
        home = self._homes.get(shard)
        if home is None or epoch >= home.epoch:
            self._homes[shard] = Home(pid, epoch, self._line)

    def _turn(self, pid: int, number: int) -> Turn:
        turn = self._turns.get(pid)
        if turn is None or turn.number != number:
            turn = self._turns[pid] = Turn(number, self._line, pid in self._thawed)
            self._thawed.discard(pid)
        return turn

    def _handles(self, pid: int, turn: Turn, number: int, type_name: str, entity: str) -> str:
        self.handled += 1
        shard = type_name, self._shard_of(type_name, entity)
        home = self._homes.get(shard)
        who = f"{type_name} {entity}: object {number} of process {pid} handles a message"
        if home is None:
            return f"{who}, shard {shard[1]} has no home"
        if home.pid != pid:
            if turn.thawed or turn.began < home.since:
                return ""
            if self._unaware[pid] and home.since > self._lost[pid]:
                return ""
            return f"{who}, the home of shard {shard[1]} is process {home.pid} at epoch {home.epoch}"
        if shard not in self._hosted[pid]:
            return f"{who}, and has stopped shard {shard[1]}"
        key, me = (type_name, entity), (pid, number)
        before = self._objects.get(key)
        if before == me:
            return ""
        former = self._former.setdefault(key, set())
        if me in former:
            return f"{who} again, after object {before} has"
        if before is not None:
            former.add(before)
            self.successions += 1
        self._objects[key] = me
        return ""
