"""Moves shards between the journals of a cluster all the time, with the command that operators use,
which is killed now and then.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

from sharding_app.torture.processes import NoAnswer
from tests.acceptance.cluster import ROOT, Cluster

COMMAND_SECONDS = 60.0
SETTLE_SECONDS = 240.0
MOST_AT_ONCE = 4
SHARDS = "SELECT s.shard FROM sharding_shard s JOIN sharding_type t ON t.id = s.type_id WHERE t.name = %s ORDER BY 1"


class Mover:
    """Shards of these types move, until `settle`; then there is no copy and no closed shard."""

    def __init__(self, cluster: Cluster, types: tuple[str, ...], seed: int) -> None:
        self.moved = 0
        self.shards: dict[str, set[int]] = {name: set() for name in types}
        "All that were to move, by type."
        self.counts: Counter[str] = Counter()
        "How the commands have ended."
        self.pauses: list[float] = []
        "For how long shards had no home, as the commands saw it."
        self._cluster = cluster
        self._types = types
        self._chance = random.Random(seed)
        self._log = Path(cluster.place) / "moves.log"
        self._ends = threading.Event()
        self._finished = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        self._ends.clear()
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="mover", daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """End, and let no copy and no closed shard be left. Raises AssertionError."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join(SETTLE_SECONDS)
            assert not self._thread.is_alive(), "a command that moves shards does not end"
            self._thread = None
            assert self._finished, "the thread that moves shards has died: its traceback is on stderr"
        for name in self._types:
            for arguments in (("--cancel",), ("--delete-source", "--yes")):
                code, text = self._command(name, *arguments, seconds=SETTLE_SECONDS)
                assert code == 0, text
        assert self._cluster.sql("SELECT count(*) FROM sharding_move") == [(0,)]

    def lines(self) -> list[str]:
        """Say how much has moved, and how long shards had no home."""
        ended = ", ".join(f"{how} {number} times" for how, number in sorted(self.counts.items()))
        pauses = sorted(self.pauses)
        longest = (
            f"; without a home for {pauses[len(pauses) // 2]:.2f} s, {pauses[-1]:.2f} s at most"
            if pauses
            else ""
        )
        return [f"moves: {self.moved} shards{longest}; the command: {ended or 'not run'}"]

    def _run(self) -> None:
        aliases = ["default", *(each for each in self._cluster.journals if each)]
        while not self._ends.is_set():
            name, target = self._chance.choice(self._types), self._chance.choice(aliases)
            try:
                known = [shard for (shard,) in self._cluster.sql(SHARDS, name)]
            except NoAnswer:
                known = []
            if not known:
                self._ends.wait(1.0)
                continue
            shards = self._chance.sample(known, min(len(known), self._chance.randint(1, MOST_AT_ONCE)))
            self.shards[name].update(shards)
            kill = self._chance.uniform(1.0, 20.0) if self._chance.random() < 0.3 else None
            listed = ",".join(map(str, sorted(shards)))
            code, text = self._command(
                name,
                "--to",
                target,
                "--shards",
                listed,
                "--at-once",
                "2",
                "--yes",
                seconds=kill or COMMAND_SECONDS,
            )
            if code == 0:
                pauses = json.loads(text)["pauses"]
                self.moved += len(shards) if pauses else 0
                self.pauses += pauses
            self.counts["killed" if code is None else f"exit {code}"] += 1
            if self._chance.random() < 0.7:
                # Also after a kill: a command that is refused while copies are left moves nothing.
                self._command(name, "--delete-source", "--yes", seconds=COMMAND_SECONDS)
            elif self._chance.random() < 0.3:
                self._command(name, "--cancel", seconds=COMMAND_SECONDS)
            self._ends.wait(self._chance.uniform(0.0, 1.0))
        self._finished = True

    def _command(self, *arguments: str, seconds: float) -> tuple[int | None, str]:
        """Run it; it is killed when its time is over. Return its exit code, or none, and what it
        says.
        """
        command = [
            sys.executable,
            "manage.py",
            "sharding_move_journal",
            *arguments,
            "--json",
        ]
        environment = self._cluster.environment()
        with (
            self._log.open("a") as log,
            subprocess.Popen(
                command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as process,
        ):
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                log.write(f"{arguments} killed\n")
                return None, ""
            log.write(f"{arguments} {process.returncode} {out}{err}\n")
            return process.returncode, out or err
