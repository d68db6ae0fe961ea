"""A node's own HTTP endpoint, for probes and for Prometheus: /startup, /ready, /alive and /metrics, and nothing else.

It answers on the node's event loop, so a loop that stands still does not answer. One short request a connection; what is
too long, too slow or not understood is refused. It binds to the loopback unless the settings say otherwise.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import cast, get_args

from sharding_app.runtime.exposition import CONTENT_TYPE
from sharding_app.runtime.health import NodeHealth, Question

logger = logging.getLogger("sharding.node")

REQUEST_SECONDS = 5.0
MAX_REQUEST_BYTES = 8192
MAX_CONNECTIONS = 32


class NodeEndpoint:
    def __init__(self, health: NodeHealth, metrics: Callable[[], str]) -> None:
        self._health = health
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self._open = 0

    @property
    def port(self) -> int:
        """Where it listens; 0: it does not."""
        return 0 if self._server is None else int(self._server.sockets[0].getsockname()[1])

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError if the address is taken."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST_BYTES)
        logger.info("health and metrics at http://%s:%d/", host, self.port, extra={"action": "endpoint_open"})

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                if self._open > MAX_CONNECTIONS:
                    status, kind, body = (
                        HTTPStatus.SERVICE_UNAVAILABLE,
                        "text/plain",
                        "too many connections\n",
                    )
                    head = False
                else:
                    request = await reader.readuntil(b"\r\n\r\n")
                    head = request.startswith(b"HEAD ")
                    status, kind, body = self._answer(request)
                writer.write(_response(status, kind, body, head=head))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError) as error:
            logger.debug("a request came to nothing: %r", error, extra={"action": "endpoint_request_failed"})
        finally:
            self._open -= 1
            writer.close()

    def _answer(self, request: bytes) -> tuple[HTTPStatus, str, str]:
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return HTTPStatus.BAD_REQUEST, "text/plain", "not understood\n"
        if words[0] not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", "only GET and HEAD\n"
        name = words[1].partition("?")[0].strip("/")
        if name == "metrics":
            return HTTPStatus.OK, CONTENT_TYPE, self._metrics()
        if name not in get_args(Question):
            return HTTPStatus.NOT_FOUND, "text/plain", "/startup, /ready, /alive, /metrics\n"
        verdict = self._health.ask(cast(Question, name))
        status = HTTPStatus.OK if verdict.ok else HTTPStatus.SERVICE_UNAVAILABLE
        body = json.dumps({"status": "pass" if verdict.ok else "fail", "output": verdict.text})
        return status, "application/health+json", f"{body}\n"


def _response(status: HTTPStatus, kind: str, body: str, *, head: bool) -> bytes:
    data = body.encode()
    headers = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return headers.encode("latin-1") + (b"" if head else data)
