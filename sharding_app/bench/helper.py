"""A helper process of a benchmark, from the outside: it is told lines, and tells lines that begin
with a word.

Its log is read all the time: a full pipe would stop it. It ends with its input.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sharding_app.bench.cluster import ANSWER_SECONDS, END_SECONDS, UP_SECONDS, NodeFailed
from sharding_app.processes.child_processes import manage

LINES_KEPT = 20


class HelperProcess:
    """One helper."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, words: Sequence[str]) -> None:
        """`words`: the lines that begin so are told to the benchmark; the others are its log."""
        self._name = name
        self._process = process
        self._words = frozenset(words)
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        self._log: deque[str] = deque(maxlen=LINES_KEPT)
        self.reading = asyncio.ensure_future(self._read())

    def say(self, line: str) -> None:
        """Tell it a line. Raises NodeFailed."""
        if self._process.stdin is None:
            raise NodeFailed(f"{self._name} has no input")
        self._process.stdin.write(f"{line}\n".encode())

    async def word(self, wanted: str, seconds: float = UP_SECONDS) -> str:
        """Return the rest of the next line that begins with this word. Raises NodeFailed."""
        try:
            async with asyncio.timeout(seconds):
                while line := await self._heard.get():
                    word, _, rest = line.partition(" ")
                    if word == wanted:
                        return rest
        except TimeoutError:
            self._log.append(f"(no {wanted!r} within {seconds:g} s)")
        raise NodeFailed(f"{self._name} failed:\n" + "\n".join(self._log))

    async def _read(self) -> None:
        """Read all its output; an empty line in `_heard` is the end."""
        if self._process.stdout is not None:
            async for raw in self._process.stdout:
                line = raw.decode(errors="replace").rstrip()
                if line.partition(" ")[0] in self._words:
                    self._heard.put_nowait(line)
                else:
                    self._log.append(line)
        self._heard.put_nowait("")


@asynccontextmanager
async def helper_process(name: str, words: Sequence[str], *arguments: str) -> AsyncIterator[HelperProcess]:
    """Start ``manage.py sharding_bench`` with these arguments, wait until it is up, and end it at
    the end.
    """
    process = await asyncio.create_subprocess_exec(
        *manage("sharding_bench", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    helper = HelperProcess(name, process, words)
    try:
        yield helper
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(END_SECONDS + ANSWER_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await helper.reading
