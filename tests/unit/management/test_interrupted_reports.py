"""A report that Ctrl-C ends before there is one is no sign of health: a roll-out must not go on."""

import io
import json
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from sharding_app.management.commands.sharding_status import Command

ARGUMENTS: tuple[list[str], ...] = (["--wait"], ["--wait", "--node", "one"], [], ["--watch"])


def interrupt(self: Command) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("as_json", [False, True])
def test_it_is_a_failure(monkeypatch: pytest.MonkeyPatch, arguments: list[str], as_json: bool) -> None:
    monkeypatch.setattr(Command, "look", interrupt)
    out = io.StringIO()
    with pytest.raises(CommandError, match="Interrupted") as caught:
        call_command("sharding_status", *arguments, *(["--json"] if as_json else []), stdout=out)
    assert caught.value.returncode == 1
    shown = out.getvalue()
    assert (json.loads(shown) if as_json else shown) == (
        {"healthy": False, "error": "Interrupted."} if as_json else ""
    )


@pytest.mark.parametrize("code", [0, 1])
def test_the_end_of_a_watch_has_the_code_of_its_last_report(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    class Found:
        def line(self) -> str:
            return "found"

    def look(self: Command) -> None:
        seen: Any = Found()
        seen.code = code
        self.show(seen)
        raise KeyboardInterrupt

    monkeypatch.setattr(Command, "look", look)
    out = io.StringIO()
    if code:
        with pytest.raises(SystemExit) as caught:
            call_command("sharding_status", "--watch", stdout=out)
        assert caught.value.code == code
    else:
        call_command("sharding_status", "--watch", stdout=out)
    assert out.getvalue() == "found\n"
