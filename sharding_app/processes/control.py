"""Requests of the site to the process that has started its nodes: kill, freeze, drain, add.

`runcluster` makes a pair of sockets, and the site's process inherits one of them. So a request
comes from that process alone: there is no address to connect to. A request names a node of the
command, never a process id.

Contract: each request has one answer, or `NoAnswer` is raised. A request whose time is over when
the parent looks is not carried out, and an answer that came too late is dropped. The parent looks
several times a second, and answers in the order of the requests.
"""

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Literal

import msgspec

ANSWER_SECONDS = 8.0
MAX_BYTES = 32 * 1024

Action = Literal["look", "kill", "freeze", "drain", "add"]
State = Literal["starting", "up", "frozen", "leaving", "ended"]


class Request(msgspec.Struct, frozen=True):
    action: Action
    node: str = ""
    seconds: float = 0.0
    "For which a node is frozen."
    anyway: bool = False
    "Also if no other node runs."
    until: float = 0.0
    "When its site waits no more, by the clock that all processes of a machine share."
    id: str = ""


class NodeProcess(msgspec.Struct, frozen=True, array_like=True):
    """One node as its parent sees it. Short, since a datagram of macOS has 2,048 bytes."""

    name: str
    pid: int
    state: State
    seconds: float = 0.0
    "Until it goes on, if it is frozen."


Code = Literal["done", "last", "gone", "busy", "full", "invalid"]


class Reply(msgspec.Struct, frozen=True):
    """`last`: no other node runs, so the request has to say `anyway`."""

    code: Code
    text: str = ""
    nodes: tuple[NodeProcess, ...] = ()
    id: str = ""


class NoAnswer(Exception):
    """The parent has not answered. The message is for people."""


class ControlServer:
    """The parent's end, and the one that the site inherits."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)

    @property
    def fd(self) -> int:
        """The end for the site's process, each time that it is started."""
        return self._theirs.fileno()

    def serve(self, handle: Callable[[Request], Reply]) -> None:
        """Answer all requests that have come."""
        while (raw := self._received()) is not None:
            with contextlib.suppress(msgspec.MsgspecError):
                request = msgspec.json.decode(raw, type=Request)
                if time.monotonic() >= request.until:
                    continue
                reply = msgspec.structs.replace(handle(request), id=request.id)
                # Where no site reads, there is no room in the end, and the answer is not needed.
                with contextlib.suppress(OSError):
                    self._ours.send(msgspec.json.encode(reply))

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    def _received(self) -> bytes | None:
        try:
            return self._ours.recv(MAX_BYTES)
        except BlockingIOError:
            return None


class ControlClient:
    """The site's end. May be used from any thread."""

    def __init__(self, end: socket.socket, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._end = end
        self._answer_seconds = answer_seconds
        self._lock = threading.Lock()

    def ask(self, request: Request) -> Reply:
        """Send a request and wait for its answer. Raises NoAnswer."""
        with self._lock:
            deadline = time.monotonic() + self._answer_seconds
            sent = msgspec.structs.replace(request, until=deadline, id=secrets.token_hex(8))
            try:
                self._end.settimeout(self._answer_seconds)
                self._end.send(msgspec.json.encode(sent))
                while (left := deadline - time.monotonic()) > 0:
                    self._end.settimeout(left)
                    reply = msgspec.json.decode(self._end.recv(MAX_BYTES), type=Reply)
                    if reply.id == sent.id:
                        return reply
            except (OSError, msgspec.MsgspecError):
                pass
        raise NoAnswer(
            f"runcluster has not answered within {self._answer_seconds:g} s, so nothing was done: it may be "
            "loading new code. Look at its terminal, and try again."
        )


_client: ControlClient | None = None


def inherit(fd: int) -> None:
    """Take the end that this process has got from its parent. Its own children do not get it."""
    global _client
    end = socket.socket(fileno=fd)
    end.set_inheritable(False)
    _client = ControlClient(end)


def control() -> ControlClient | None:
    """Return the way to the parent; None: this process was not started by a `runcluster` that
    takes requests.
    """
    return _client
