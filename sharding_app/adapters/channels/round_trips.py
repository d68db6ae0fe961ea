"""Commands to one Redis server that share round trips: while one is under way, those that come
wait, and go together in the next.

The layers of channels_redis send one command for each round trip. The pub/sub layer even holds a
lock meanwhile, so a process with a slow way to Redis sent one frame for each round trip, whatever
the number of its links, and its frames waited for each other until their time was over. The core
layer makes a connection for each command that is under way.

A caller that stops waiting ends neither the round trip nor its connection: otherwise each late
answer would cost a new connection, which takes several round trips. A server that does not answer
at all is the transport's to notice; it then calls `end`.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

CANCEL_AGAIN_SECONDS = 0.05


class _Waiting(NamedTuple):
    command: tuple[Any, ...]
    answer: asyncio.Future[Any]


class RoundTrips:
    """The way to one server. Belongs to one event loop; `client` returns its client of redis-py."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client
        self._waiting: list[_Waiting] = []
        self._under_way: asyncio.Task[None] | None = None

    async def run(self, *command: Any) -> Any:
        """Carry out one command and return its answer. Raises its error, or the connection's."""
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._waiting.append(_Waiting(command, answer))
        if self._under_way is None:
            self._under_way = loop.create_task(self._go(), name="sharding round trips")
        return await answer

    async def end(self) -> None:
        """Stop waiting for the server. The commands that wait fail."""
        while (task := self._under_way) is not None:
            # Repeated, because with a configured socket_timeout redis-py sends by `wait_for`, which
            # can swallow a cancellation before Python 3.12.
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_AGAIN_SECONDS)
            if task.done() and self._under_way is task:
                self._drop([])  # cancelled before it began: nothing of `_go` has run

    async def _go(self) -> None:
        together: list[_Waiting] = []
        try:
            while together := [each for each in self._waiting if not each.answer.done()]:
                self._waiting = []
                for each, found in zip(together, await self._answers(together), strict=True):
                    _tell(each.answer, found)
        finally:
            self._drop(together)

    def _drop(self, together: list[_Waiting]) -> None:
        for each in [*together, *self._waiting]:
            _tell(each.answer, ConnectionError("the connection to Redis is dropped"))
        self._waiting, self._under_way = [], None

    async def _answers(self, together: list[_Waiting]) -> list[Any]:
        """Return an answer, or an error, for each command."""
        try:
            client = self._client()
            if len(together) == 1:
                return [await client.execute_command(*together[0].command)]
            pipeline = client.pipeline(transaction=False)
            for each in together:
                pipeline.execute_command(*each.command)
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001  (the callers get it)
            return [error] * len(together)
        return answers


def _tell(answer: "asyncio.Future[Any]", found: Any) -> None:
    with contextlib.suppress(asyncio.InvalidStateError):  # its caller waits no longer
        if isinstance(found, BaseException):
            answer.set_exception(found)
        else:
            answer.set_result(found)
