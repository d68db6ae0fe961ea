"""`sharding_node`: one node or several, what it is called, and how it ends."""

from __future__ import annotations

import io
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management.base import OutputWrapper

from sharding_app.embedded import OwnPostgres
from sharding_app.operations.console import columns, style_for
from tests.support.live import Live, children, running, until

pytestmark = pytest.mark.usefixtures("real_starts")


def test_a_node_says_that_it_is_up_and_leaves_in_order(live_tables: Live) -> None:
    with live_tables.program(
        "sharding_node", "--name", "east", "--roles", "web,backend", "--app-version", "7"
    ) as node:
        node.wait_line("^node east is up$")
        (row,) = live_tables.status()["nodes"]
        assert (row["name"], row["roles"], row["version"]) == ("east", ["web", "backend"], "7")
        assert node.stop(signal.SIGINT) == 0
        assert node.said() == ["node east is up"]
        assert live_tables.status()["nodes"] == []


def test_several_nodes_are_children_that_end_together(live_tables: Live) -> None:
    command = ["sharding_node", "--name", "pair", "--processes", "2", "--roles", "backend"]
    with live_tables.program(*command) as nodes:
        nodes.wait_line("^node pair-1 is up$")
        nodes.wait_line("^node pair-2 is up$")
        pids = children(nodes.pid)
        assert len(pids) == 2
        found = live_tables.status()
        assert sorted(each["name"] for each in found["nodes"]) == ["pair-1", "pair-2"]
        assert [each["roles"] for each in found["nodes"]] == [["backend"]] * 2
        assert nodes.stop() == 0
        assert not any(running(pid) for pid in pids)
        assert sorted(nodes.said()) == ["node pair-1 is up", "node pair-2 is up"]
        assert live_tables.status()["nodes"] == []


def test_several_nodes_end_with_a_parent_that_is_killed(live_tables: Live) -> None:
    with live_tables.program("sharding_node", "--name", "lost", "--processes", "2") as nodes:
        nodes.wait_line("^node lost-1 is up$")
        nodes.wait_line("^node lost-2 is up$")
        pids = children(nodes.pid)
        nodes.process.kill()
        until(lambda: not any(running(pid) for pid in pids), 30, "both have ended")
        assert live_tables.status()["nodes"] == []


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_node_at_once(
    live_servers: Live, own_postgres: OwnPostgres, number: signal.Signals
) -> None:
    live = Live(own_postgres.url, live_servers.redis_url)
    assert live.manage("migrate", "-v0").returncode == 0
    with live.program("sharding_node", "--name", "slow", "--leave-timeout", "600") as node:
        node.wait_line("^node slow is up$")
        own_postgres.kill()  # it cannot say that it leaves
        node.process.send_signal(number)
        until(lambda: not catches(node.pid, signal.SIGTERM), 30, "it leaves")
        assert node.stop(number) == -number
        assert "KeyboardInterrupt" not in node.text, "which waits for all threads"


@pytest.fixture
def born_to_hear_hangups() -> Iterator[None]:
    """The tests may run under nohup, and children would be born to ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("born_to_hear_hangups")
@pytest.mark.parametrize(
    ("number", "options"), [(signal.SIGHUP, ()), (signal.SIGTERM, ("--end-with-stdin",))]
)
def test_a_signal_that_comes_twice_from_elsewhere_counts_once(
    live_servers: Live, own_postgres: OwnPostgres, number: signal.Signals, options: tuple[str, ...]
) -> None:
    """A closed terminal sends SIGHUP twice; a service manager may signal a child and its parent."""
    live = Live(own_postgres.url, live_servers.redis_url)
    assert live.manage("migrate", "-v0").returncode == 0
    with live.program("sharding_node", "--name", "slow", "--leave-timeout", "600", *options) as node:
        node.wait_line("^node slow is up$")
        own_postgres.kill()  # it cannot say that it leaves
        node.process.send_signal(number)
        until(lambda: not catches(node.pid, signal.SIGTERM), 30, "it leaves")
        node.process.send_signal(number)
        time.sleep(0.3)
        assert node.process.poll() is None
        node.process.kill()


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--processes=0", "--processes must be at least 1."),
        ("--leave-timeout=-1", "--leave-timeout must not be negative."),
    ],
)
def test_numbers_that_make_no_sense_are_refused(live_tables: Live, option: str, sentence: str) -> None:
    answer = live_tables.manage("sharding_node", option)
    assert answer.returncode == 1
    assert answer.stderr.strip() == f"CommandError: {sentence}"


def test_help_shows_an_example(live_tables: Live) -> None:
    text = " ".join(live_tables.manage("sharding_node", "--help").stdout.split())
    assert "Example: manage.py sharding_node --name east-1 --roles backend" in text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "environment", "options", "coloured"),
    [
        (True, {}, {}, True),
        (False, {}, {}, False),
        (True, {"NO_COLOR": "1"}, {}, False),
        (True, {"NO_COLOR": ""}, {}, True),
        (True, {}, {"no_color": True}, False),
        (False, {"NO_COLOR": "1"}, {"force_color": True}, True),
    ],
)
def test_colours_only_on_a_terminal_whose_user_wants_them(
    terminal: bool, environment: dict[str, str], options: dict[str, bool], coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", Terminal())
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = OutputWrapper(Terminal() if terminal else io.StringIO())
    assert ("\x1b" in style_for(stream, **options).SUCCESS("fine")) is coloured


def test_columns_stand_below_each_other() -> None:
    assert columns([("Site:", "http://a/"), ("A long one:", "b")]) == [
        "  Site:        http://a/",
        "  A long one:  b",
    ]
    assert columns([]) == []
