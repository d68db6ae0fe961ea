"""A resize that a further journal has not followed yet, and that takes longer than a take may.

Contract: the work is one statement, which another home's take, or a command, may have done or be
doing as well. It says which numbers hold there only at its end. Until then no shard of the type is
taken by this process.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from sharding_app.adapters.postgres.connection import Line
from sharding_app.adapters.postgres.errors import LOST, explain

logger = logging.getLogger("sharding.journal")

ANSWER_SECONDS = 3600.0
"""Longer than millions of remembered ids take."""


class LongResizes:
    def __init__(self, open_line: Callable[[], Line]) -> None:
        self._open_line = open_line
        self._at_work: dict[int, asyncio.Task[None]] = {}
        "By number of the type."

    def has(self, type_id: int) -> bool:
        return type_id in self._at_work

    def begin(self, wanted: Mapping[str, Any]) -> None:
        """Let the journal follow the resize of a type, beside everything else. `wanted`: the
        parameters of a take.
        """
        type_id = wanted["type_id"]
        if self.has(type_id):
            return  # another take has begun it
        task = self._at_work[type_id] = asyncio.create_task(self._follow(wanted))
        task.add_done_callback(lambda _: self._at_work.pop(type_id, None))

    async def close(self) -> None:
        tasks = [*self._at_work.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, wanted: Mapping[str, Any]) -> None:
        line = self._open_line()
        logger.warning(
            "journal follows a resize of %s: its shards start once their remembered ids have their present shards",
            wanted["type"], extra={"action": "resize_followed", "type": wanted["type"]},
        )  # fmt: skip
        try:
            await line.rows("journal_refile", {**wanted, "resized": wanted["done"]})
        except (*LOST, OSError) as error:
            logger.warning(
                "journal has not followed a resize of %s (%s): the next take tries again", wanted["type"], explain(error),
                extra={"action": "resize_not_followed", "type": wanted["type"]},
            )  # fmt: skip
        finally:
            await line.close()
