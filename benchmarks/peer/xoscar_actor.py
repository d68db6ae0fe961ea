"""The actors that xoscar's process imports. Its journal belongs to the process."""

from __future__ import annotations

from typing import Any

import xoscar

from benchmarks.peer.store import Journal

_journals: list[Journal] = []


class Opener(xoscar.Actor):  # type: ignore[misc]
    """Opens and closes its process's journal."""

    async def open(self, url: str) -> None:
        _journals.append(await Journal(url).open())

    async def close(self) -> None:
        await _journals.pop().close()


class Account(xoscar.Actor):  # type: ignore[misc]
    def __init__(self, entity: str) -> None:
        super().__init__()
        self.entity = entity
        self.count = 0
        self.number = 0

    async def ask(self) -> int:
        self.count += 1
        return self.count

    async def durable(self) -> int:
        self.number += 1
        await _journals[0].append(self.entity, self.number)
        return self.number

    def __getstate__(self) -> Any:
        raise TypeError("an account is not sent anywhere")
