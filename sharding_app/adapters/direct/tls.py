"""TLS between machines: certificates of the cluster's own authority, and bounded handshakes."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger("sharding.transport")

BACKLOG = 128
AGAIN_SECONDS = 0.1
"""Pause after an accept that failed, for want of file descriptors for instance."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Both sides show a certificate of the cluster's own authority."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def tls_of(certificate: str, key: str, authority: str) -> Tls:
    """Read the files. Raises OSError, ssl.SSLError."""
    contexts = []
    for purpose in (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH):
        context = ssl.create_default_context(purpose, cafile=authority)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # The handshake with the cluster's key proves which process it is. The authority says only
        # that it is one of the cluster.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(certificate, key)
        contexts.append(context)
    return Tls(contexts[0], contexts[1])


class TlsServer:
    """Accepts connections, with at most `limit` of them at the handshake of TLS: the oldest makes
    room for the next.

    A server of asyncio names its connections only after that handshake, so that it could not bound
    their number.
    """

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        accept: Callable[[], asyncio.Protocol],
        *,
        limit: int,
        seconds: float,
        dropped: Callable[[str], None],
    ) -> None:
        """`dropped` is called with the name of a counter for each connection that ends here."""
        listening.setblocking(False)
        self.sockets = (listening,)
        self._context = context
        self._accept = accept
        self._limit = limit
        self._seconds = seconds
        self._dropped = dropped
        self._under_way: dict[asyncio.Task[None], None] = {}
        self._accepting = asyncio.get_running_loop().create_task(self._run(), name="sharding TLS server")

    def close(self) -> None:
        self._accepting.cancel()
        for task in self._under_way:
            task.cancel()
        self.sockets[0].close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self.sockets[0])
            except Exception:  # noqa: BLE001  (want of memory, say: a node must not go deaf by it)
                self._dropped("accepts_failed")
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            task = loop.create_task(self._shake_hands(accepted), name="sharding TLS handshake")
            self._under_way[task] = None
            task.add_done_callback(self._ended)
            if len(self._under_way) > self._limit:
                self._dropped("unproven_dropped")
                oldest = next(iter(self._under_way))
                del self._under_way[oldest]
                oldest.cancel()
            await asyncio.sleep(0)  # it begins, and then owns its socket

    async def _shake_hands(self, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._accept, accepted, ssl=self._context, ssl_handshake_timeout=self._seconds
            )
        except OSError:  # ssl.SSLError is one: the other side has no certificate of the authority
            self._dropped("tls_failed")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a handshake of TLS failed", exc_info=error, extra={"action": "transport.tls_error"})


async def listen_on(host: str, port: int) -> socket.socket:
    """Return a socket that listens there. Raises OSError."""
    loop = asyncio.get_running_loop()
    family, _, _, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    return socket.create_server(address, family=family, backlog=BACKLOG)
