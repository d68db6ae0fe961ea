"""The way from the site to the process that has started its nodes."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest

from sharding_app.processes.control import ControlClient, ControlServer, NoAnswer, NodeProcess, Reply, Request
from tests.support.live import until
from tests.support.slack import SLACK


@pytest.fixture
def server() -> Iterator[ControlServer]:
    found = ControlServer()
    yield found
    found.close()


def end_of(server: ControlServer) -> socket.socket:
    """The end as the site's process has it."""
    return socket.socket(fileno=os.dup(server.fd))


def serve_until(server: ControlServer, handle: Callable[[Request], Reply], done: Callable[[], bool]) -> None:
    def look() -> bool:
        server.serve(handle)
        return done()

    until(look, 10, "all requests are answered")


def test_each_request_has_its_answer(server: ControlServer) -> None:
    seen: list[Request] = []

    def handle(request: Request) -> Reply:
        seen.append(request)
        return Reply("done", request.node, (NodeProcess(request.node, 7, "frozen", 1.5),))

    with end_of(server) as end:
        client, answers = ControlClient(end, 60.0 * SLACK), []
        names = [f"node-{number}" for number in range(5)]
        asking = [
            threading.Thread(
                target=lambda name=name: answers.append(client.ask(Request("freeze", name, 2.0)))
            )
            for name in names
        ]
        for each in asking:
            each.start()
        serve_until(server, handle, lambda: len(answers) == len(names))
        for each in asking:
            each.join()
    assert sorted(each.text for each in answers) == sorted(each.node for each in seen) == names
    assert {(each.nodes[0].name, each.nodes[0].seconds) for each in answers} == {
        (each, 1.5) for each in names
    }
    assert {(each.action, each.seconds, each.anyway) for each in seen} == {("freeze", 2.0, False)}


def test_neither_a_late_request_nor_a_late_answer_counts(server: ControlServer) -> None:
    with end_of(server) as end:
        with pytest.raises(NoAnswer, match=r"has not answered within 0\.05 s, so nothing was done"):
            ControlClient(end, 0.05).ask(Request("kill", "node-1"))
        end.send(b"nonsense")
        server.serve(lambda request: pytest.fail(f"{request} is carried out"))
        server._ours.send(msgspec.json.encode(Reply("done", "of another request", id="other")))
        client, answers = ControlClient(end, 60.0 * SLACK), list[Reply]()
        asking = threading.Thread(target=lambda: answers.append(client.ask(Request("look"))))
        asking.start()
        serve_until(server, lambda request: Reply("done", request.action), lambda: bool(answers))
        asking.join()
        assert [each.text for each in answers] == ["look"]
