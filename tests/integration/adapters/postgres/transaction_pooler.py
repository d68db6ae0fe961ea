"""A transaction pooler in miniature: each client's transaction goes to the server session that has
been free shortest.

Enough of the protocol to see what such a pooler does to sessions; the real ones do the same.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_GREETING = b"R" + struct.pack("!ii", 8, 0)
_READY = b"Z" + struct.pack("!i", 5) + b"I"


def _parameter(name: str, value: str) -> bytes:
    body = f"{name}\0{value}\0".encode()
    return b"S" + struct.pack("!i", len(body) + 4) + body


class Pooler:
    def __init__(self, params: dict[str, Any]) -> None:
        self._params = params
        self._free: list[Stream] = []
        self._owners: list[psycopg.AsyncConnection[tuple[Any, ...]]] = []
        self._clients = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = struct.unpack("!i", await reader.readexactly(4))
        await reader.readexactly(length - 4)
        self._clients += 1
        key = b"K" + struct.pack("!iii", 12, self._clients, 1)
        standard = _parameter("client_encoding", "UTF8") + _parameter("standard_conforming_strings", "on")
        version = _parameter("server_version", "16.0")
        writer.write(_GREETING + standard + version + key + _READY)
        try:
            await self._transactions(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _transactions(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server: Stream | None = None
        while True:
            kind, message = await _message(reader)
            if kind == b"X":
                break
            server = server or await self._take()
            server[1].write(message)
            if kind not in {b"Q", b"S"}:
                continue
            while True:
                kind, message = await _message(server[0])
                writer.write(message)
                if kind == b"Z":
                    break
            await writer.drain()
            if message[-1:] == b"I":
                self._free.append(server)
                server = None

    async def _take(self) -> Stream:
        if self._free:
            return self._free.pop()
        owner = await psycopg.AsyncConnection.connect(
            **{**self._params, "sslmode": "disable", "gssencmode": "disable"}, autocommit=True
        )
        self._owners.append(owner)
        twin = socket.fromfd(owner.pgconn.socket, socket.AF_INET, socket.SOCK_STREAM)
        return await asyncio.open_connection(sock=twin)

    async def stop(self) -> None:
        for _, writer in self._free:
            writer.close()
        for owner in self._owners:
            await owner.close()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!i", head[1:])
    return head[:1], head + await reader.readexactly(length - 4)


@asynccontextmanager
async def transaction_pooler(params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Give the parameters that lead through a pooler."""
    pooler = Pooler(params)
    server = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
    try:
        yield {
            **params,
            "host": "127.0.0.1",
            "port": server.sockets[0].getsockname()[1],
            "sslmode": "disable",
            "gssencmode": "disable",
        }
    finally:
        server.close()
        await pooler.stop()
