"""A node's HTTP endpoint for probes and Prometheus: /startup, /ready, /alive and /metrics only.

It answers on the node's event loop, so a blocked loop does not answer. A connection takes one short
request. Requests that are too long, too slow or malformed are refused. The number of connections is
bounded: the oldest silent one is dropped, so that a probe is answered however many clients connect
and send nothing. It binds to the loopback unless the settings say otherwise. With a token, /metrics
requires it.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from hmac import compare_digest
from http import HTTPStatus
from typing import cast, get_args

from sharding_app.runtime.node.health import NodeHealth, Question
from sharding_app.runtime.telemetry.exposition import CONTENT_TYPE

logger = logging.getLogger("sharding.node")

HEADER_SECONDS = 1.0
ANSWER_SECONDS = 5.0
MAX_REQUEST_BYTES = 8192
MAX_CONNECTIONS = 32


class NodeEndpoint:
    def __init__(self, health: NodeHealth, metrics: Callable[[], str], metrics_token: str = "") -> None:
        self._health = health
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self._token = metrics_token
        self._open: dict[asyncio.StreamWriter, bool] = {}
        "Connections, oldest first, and whether their request has yet to come."

    @property
    def port(self) -> int:
        """Port on which it listens; 0: it does not."""
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
        self._make_room()
        self._open[writer] = True
        try:
            async with asyncio.timeout(HEADER_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
            self._open[writer] = False
            async with asyncio.timeout(ANSWER_SECONDS):
                status, kind, body = self._answer(request)
                writer.write(_response(status, kind, body, head=request.startswith(b"HEAD ")))
                writer.close()
                await writer.wait_closed()  # until the system has all of it
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError) as error:
            logger.debug("a request came to nothing: %r", error, extra={"action": "endpoint_request_failed"})
        finally:
            del self._open[writer]
            writer.close()
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()  # it would wait for its client, however long

    def _make_room(self) -> None:
        """Drop the connection that is silent longest: a new one may be a probe's."""
        if len(self._open) < MAX_CONNECTIONS:
            return
        leaving = [writer for writer in self._open if writer.transport.is_closing()]
        if len(self._open) - len(leaving) < MAX_CONNECTIONS:
            return
        there = [writer for writer in self._open if not writer.transport.is_closing()]
        victim = next((writer for writer in there if self._open[writer]), there[0])
        victim.transport.abort()

    def _answer(self, request: bytes) -> tuple[HTTPStatus, str, str]:
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return HTTPStatus.BAD_REQUEST, "text/plain", "not understood\n"
        if words[0] not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", "only GET and HEAD\n"
        name = words[1].partition("?")[0].strip("/")
        if name == "metrics":
            if self._token and not compare_digest(
                _header(request, b"authorization"), f"Bearer {self._token}".encode()
            ):
                return HTTPStatus.UNAUTHORIZED, "text/plain", "a bearer token is needed\n"
            return HTTPStatus.OK, CONTENT_TYPE, self._metrics()
        if name not in get_args(Question):
            return HTTPStatus.NOT_FOUND, "text/plain", "/startup, /ready, /alive, /metrics\n"
        verdict = self._health.ask(cast(Question, name))
        status = HTTPStatus.OK if verdict.ok else HTTPStatus.SERVICE_UNAVAILABLE
        body = json.dumps({"status": "pass" if verdict.ok else "fail", "output": verdict.text})
        return status, "application/health+json", f"{body}\n"


def _header(request: bytes, name: bytes) -> bytes:
    for line in request.split(b"\r\n")[1:]:
        given, _, value = line.partition(b":")
        if given.strip().lower() == name:
            return value.strip()
    return b""


def _response(status: HTTPStatus, kind: str, body: str, *, head: bool) -> bytes:
    data = body.encode()
    headers = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return headers.encode("latin-1") + (b"" if head else data)
