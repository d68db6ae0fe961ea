"""The proxy fails as it says, and works again afterwards."""

import gc
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sharding_app.processes.proxy import Proxy
from tests.support.slack import SLACK


@pytest.fixture
def echo_port() -> Iterator[int]:
    """Return the port of a server that says everything back."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def proxy(echo_port: int) -> Iterator[Proxy]:
    with Proxy(echo_port) as made:
        yield made


def connect(proxy: Proxy, seconds: float = 10.0 * SLACK) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=seconds)


def hears(connection: socket.socket, word: bytes, seconds: float = 10.0 * SLACK) -> bool:
    """Wait for a word; False if nothing comes in time. Raises OSError when the connection is
    gone.
    """
    connection.settimeout(seconds)
    heard = b""
    while len(heard) < len(word):
        try:
            data = connection.recv(len(word) - len(heard))
        except TimeoutError:
            return False
        if not data:
            raise ConnectionResetError
        heard += data
    assert heard == word
    return True


def test_forwards(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        connection.sendall(b"hello")
        assert hears(connection, b"hello")
    assert proxy.accepted == 1


def test_refuses_then_takes_connections_on_the_same_port(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        connection.sendall(b"a")
        assert hears(connection, b"a")
        proxy.refuse()
        with pytest.raises(OSError, match=r".*"):
            hears(connection, b"b")
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.forward()
    with connect(proxy) as connection:
        connection.sendall(b"c")
        assert hears(connection, b"c")


def test_keeps_its_port_while_it_refuses(proxy: Proxy) -> None:
    """The port is one of those that the kernel gives to outgoing connections, a client's own among
    them.
    """
    proxy.refuse()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", proxy.port))
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)


def test_leaves_no_connection_open_that_comes_while_it_closes(echo_port: int) -> None:
    """Each round meets another moment; a socket without an owner would be warned of, and warnings
    are errors.
    """
    for number in range(40):
        clients = [socket.socket() for _ in range(number % 7)]
        with ExitStack() as stack, Proxy(echo_port) as proxy:
            for each in clients:
                stack.enter_context(each)
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", proxy.port))
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(each.message) for each in left] == []


def test_hangs_and_lets_through_later(proxy: Proxy) -> None:
    with connect(proxy) as old:
        old.sendall(b"a")
        assert hears(old, b"a")
        proxy.hang()
        old.sendall(b"b")
        with connect(proxy) as new:
            new.sendall(b"c")
            assert not hears(new, b"c", 0.2)
            assert not hears(old, b"b", 0.1)
            proxy.forward()
            assert hears(new, b"c")
            assert hears(old, b"b")


@pytest.mark.parametrize("direction", ["up", "down"])
def test_one_direction_only(proxy: Proxy, direction: str) -> None:
    with connect(proxy) as connection:
        connection.sendall(b"a")
        assert hears(connection, b"a")
        proxy.one_way("up" if direction == "up" else "down")
        connection.sendall(b"b")
        assert not hears(connection, b"b", 0.2)
        proxy.forward()
        assert hears(connection, b"b")


def test_slow(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        proxy.slow(0.1)
        began = time.monotonic()
        connection.sendall(b"a")
        assert hears(connection, b"a")
        assert time.monotonic() - began >= 0.2, "once there and once back"


def test_cuts_half_way(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        connection.sendall(b"hello")
        assert hears(connection, b"hello")
        proxy.cut(6)
        connection.sendall(b"hello")
        with pytest.raises(OSError, match=r".*"):
            hears(connection, b"hello")
    proxy.forward()
    with connect(proxy) as connection:
        connection.sendall(b"again")
        assert hears(connection, b"again")


def test_reset_is_for_once(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        connection.sendall(b"a")
        assert hears(connection, b"a")
        proxy.reset()
        with pytest.raises(OSError, match=r".*"):
            hears(connection, b"b")
    with connect(proxy) as connection:
        connection.sendall(b"c")
        assert hears(connection, b"c")
