"""A free port on the loopback that stays ours while the server behind it is down.

Ports that the kernel gives to outgoing connections are left alone: a client that keeps calling a
stopped server on such a port can be handed that very port, connect to itself, and keep the server
from coming back.
"""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
STARTS = 3
"Starts of a server, each on another port, while other processes take the ports chosen for it."
_OURS = range(15_000, 32_000)


def _outgoing() -> range:
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except OSError:
        return range(49_152, 65_536)  # the registered range, which macOS keeps to
    return range(int(first), int(last) + 1)


def port_is_free(port: int) -> bool:
    """Tell whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Choose a free port by chance, so that two projects seldom choose the same."""
    outgoing = _outgoing()
    candidates = [port for port in _OURS if port not in outgoing] or list(_OURS)
    while True:
        port = secrets.choice(candidates)
        if port_is_free(port):
            return port
