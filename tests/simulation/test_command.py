"""`manage.py sharding_simulate`: what it reports, how it fails, and which options it refuses."""

import json

import pytest
from django.core.management import CommandError, call_command

from tests.simulation.mistakes import MISTAKES
from tests.simulation.planted import main, planted


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
    with planted("answer_before_commit"), pytest.raises(SystemExit) as ended:
        call_command("sharding_simulate", "--seeds", "1", "--processes", "1")
    assert ended.value.code == 1
    text = capsys.readouterr().out
    assert "promise" in text
    assert "manage.py sharding_simulate --seeds 1 --seed 0 --nodes 3" in text


@pytest.mark.parametrize("wrong", [("--nodes", "2"), ("--seeds", "0")])
def test_wrong_options_are_told(wrong: tuple[str, str]) -> None:
    with pytest.raises(CommandError):
        call_command("sharding_simulate", *wrong)


def test_a_mistake_is_planted_until_a_seed_finds_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["answer_before_commit"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Seed 0 with 3 nodes: promise 3, ")
    assert len(text.splitlines()) > 10, "the last steps before it"
    assert "planted answer_before_commit --seeds 1 --seed 0 --nodes 3" in text


def test_a_mistake_that_is_found_as_another_one_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A planted mistake that is found under a promise that it does not break proves nothing of that
    check.
    """
    monkeypatch.setitem(
        MISTAKES, "answer_before_commit", MISTAKES["answer_before_commit"]._replace(promises=(13,))
    )
    assert main(["answer_before_commit"]) == 1
    assert "answer_before_commit breaks 13: it was found as another mistake." in capsys.readouterr().out


def test_a_mistake_that_is_not_found_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(
        MISTAKES, "answer_before_commit", MISTAKES["answer_before_commit"]._replace(make=lambda real: real)
    )
    assert main(["answer_before_commit", "--seeds", "1"]) == 1
    assert capsys.readouterr().out == "answer_before_commit was not found by 1 seeds.\n"
    with pytest.raises(SystemExit):
        main(["nonsense"])
