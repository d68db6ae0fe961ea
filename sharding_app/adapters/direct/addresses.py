"""The addresses of a process, as its row holds them.

Forms: `unix:/run/…/n-12ab.sock`, `tcp:10.0.0.5:41234`, `tls:host:41234`.
"""

from typing import Literal, NamedTuple, get_args

Way = Literal["unix", "tcp", "tls"]
MAX_ADDRESSES = 4
"""Of one process. Further ones in its row are not read."""


class Address(NamedTuple):
    way: Way
    host: str
    "Of a Unix socket: its path."
    port: int = 0

    def __str__(self) -> str:
        if self.way == "unix":
            return f"unix:{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.way}:{host}:{self.port}"


def parse(text: str) -> Address | None:
    """Read an address; None: no address that this release knows."""
    way, _, rest = text.partition(":")
    if way == "unix":
        return Address("unix", rest) if rest.startswith("/") else None
    host, _, port = rest.rpartition(":")
    if way not in get_args(Way) or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        return None
    return Address("tls" if way == "tls" else "tcp", host.removeprefix("[").removesuffix("]"), int(port))


def parse_all(texts: tuple[str, ...]) -> list[Address]:
    """Read those that are known, Unix sockets first."""
    found = [address for text in texts[:MAX_ADDRESSES] if (address := parse(text)) is not None]
    return sorted(found, key=lambda address: address.way != "unix")
