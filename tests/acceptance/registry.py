"""The global registry over real processes: it fails on any second live instance of an entity or of a singleton.

It reads what the instances say of themselves (`app.instances`), in the one order that these lines have over all processes.
Two rules, neither of which asks for a clock:

* Once a process has started a shard, no process that was its home at a lower epoch handles anything in it, nor does one
  that has stopped it. So a former home is silent from the moment at which there is another one, whatever became of it.
* Once another object of an entity has handled something, the former ones never do again: in no process.

The harness adds `thaws <pid>` before it lets a frozen process go on. What was already under way in it, past its look at the
lease, goes on then, and its answer does not leave the process (promise 2): the first line of such a process is no proof.

Entities and singletons beat by timers of their own, so that an instance which nobody calls any more still shows itself.
The coordinator is judged by what it writes (`judge.check_coordinators`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

Shard = tuple[str, int]


class Home(NamedTuple):
    pid: int
    epoch: int


class Registry:
    """Reads on where it stopped, so that a long run is judged round by round."""

    def __init__(self, shard_of: Callable[[str, str], int]) -> None:
        self._shard_of = shard_of
        self._read = 0
        self._homes: dict[Shard, Home] = {}
        self._hosted: dict[int, set[Shard]] = {}
        "What each process hosts, by its own account."
        self._objects: dict[tuple[str, str], tuple[int, int]] = {}
        self._former: dict[tuple[str, str], set[tuple[int, int]]] = {}
        self._thawed: set[int] = set()
        self.handled = 0
        self.successions = 0
        "How often another object of an entity has taken over."

    def read(self, file: Path) -> list[str]:
        """Return what is broken in the lines that were written since."""
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
        under_way = pid in self._thawed
        self._thawed.discard(pid)
        match word, rest:
            case "thaws", []:
                self._thawed.add(pid)
            case "starts", [type_name, number, epoch]:
                self._starts(pid, (type_name, int(number)), int(epoch))
            case "stops", [type_name, number, _]:
                self._hosted.get(pid, set()).discard((type_name, int(number)))
            case "handles", [number, type_name, entity]:
                wrong = self._handles(pid, int(number), type_name, entity)
                return "" if under_way else wrong
            case _:
                return f"nothing known is said by: {word} {rest}"
        return ""

    def _starts(self, pid: int, shard: Shard, epoch: int) -> None:
        self._hosted.setdefault(pid, set()).add(shard)
        home = self._homes.get(shard)
        if home is None or epoch >= home.epoch:
            self._homes[shard] = Home(pid, epoch)

    def _handles(self, pid: int, number: int, type_name: str, entity: str) -> str:
        self.handled += 1
        shard = type_name, self._shard_of(type_name, entity)
        home = self._homes.get(shard)
        who = f"{type_name} {entity}: object {number} of process {pid} handles a message"
        if home is None or home.pid != pid:
            return f"{who}, the home of shard {shard[1]} is {home}"
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
