"""Workers that write into a file that they live: a line for each look, with the machine's clock."""

import asyncio
import itertools
import json
import os
import time
from pathlib import Path

from sharding_app import ShardedDaemonProcess, Worker

LIVES = "ACCEPTANCE_LIVES"
"""Environment variable with the name of the file."""
FIRST = 6
LOOK_SECONDS = 0.02

_lives = itertools.count(1)


class Watched(Worker):
    async def run(self) -> None:
        life = f"{os.getpid()}-{next(_lives)}"
        while True:
            tell([self.number, self.workers, life, os.getpid(), time.monotonic()])
            await asyncio.sleep(LOOK_SECONDS)


def tell(line: list[object]) -> None:
    with Path(os.environ[LIVES]).open("ab", buffering=0) as said:
        said.write(json.dumps(line).encode() + b"\n")


watched = ShardedDaemonProcess.start("watched", worker=Watched, workers=FIRST)
