"""`manage.py sharding_simulate`: what it reports, how it fails, and which options it refuses."""

import json

import pytest
from django.core.management import CommandError, call_command

from sharding_app.simulation.mistakes import MISTAKES


def test_the_command_reports_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("sharding_simulate", "--seeds", "2", "--processes", "1", "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["seeds"] == 2
    assert report["failed"] == []
    assert report["commands"] >= 400
    assert sum(report["messages"].values()) > 0


def test_the_command_shows_a_broken_promise_and_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command(
            "sharding_simulate", "--seeds", "12", "--processes", "1", "--planted", "answer_before_commit"
        )
    assert ended.value.code == 1
    text = capsys.readouterr().out
    assert "promise" in text
    assert "manage.py sharding_simulate --seeds 1 --seed" in text


def test_a_mistake_that_is_found_as_another_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake that is found under a promise that it does not break proves nothing of that check."""
    monkeypatch.setitem(
        MISTAKES, "answer_before_commit", MISTAKES["answer_before_commit"]._replace(promises=(13,))
    )
    with pytest.raises(CommandError, match="breaks 13, and was found as promise"):
        call_command(
            "sharding_simulate", "--seeds", "12", "--processes", "1", "--planted", "answer_before_commit"
        )


@pytest.mark.parametrize("wrong", [("--planted", "nonsense"), ("--nodes", "2"), ("--seeds", "0")])
def test_wrong_options_are_told(wrong: tuple[str, str]) -> None:
    with pytest.raises(CommandError):
        call_command("sharding_simulate", *wrong)
