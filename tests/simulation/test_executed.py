"""Which lines were executed: what counts as one, what is told of those that were not."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from django.core.management import call_command

from sharding_app.testing.simulation.executed import FOLDERS, Executed, lines_of, report
from sharding_app.testing.simulation.runs import Job, run_all
from tests.simulation import unexecuted

SOURCE = '''import asyncio


class Port:
    def ask(self) -> int: ...

    def tell(self) -> None:
        """It is told."""


def both(first):
    """Say one of two words."""
    if first:
        return "first"
    word = "second"
    return word


def numbers():
    yield 1
    yield 2


async def waits():
    await asyncio.sleep(0)
    return 3


short = lambda: 4  # noqa: E731
'''


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "watched.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("watched", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def never(executed: Executed, folder: Path) -> list[str]:
    return report(executed.lines, [folder])["watched.py"].never


def test_lines_are_those_of_functions_that_do_something() -> None:
    assert lines_of(SOURCE) == {13, 14, 15, 16, 20, 21, 25, 26, 29}


def test_what_was_never_executed_is_told(module: ModuleType, tmp_path: Path) -> None:
    executed = Executed([tmp_path])
    module.short()
    assert never(executed, tmp_path) == ["13-29"], "nothing looked"
    with executed.watching():
        module.both(first=True)
        next(module.numbers())
    assert never(executed, tmp_path) == ["15-16", "21-29"]
    with executed.watching():
        module.both(first=False)
        list(module.numbers())
        module.short()
        waiting = module.waits()
        waiting.send(None)
        waiting.close()
    assert never(executed, tmp_path) == ["26"]
    found = report(executed.lines, [tmp_path])["watched.py"]
    assert (found.lines, found.executed, round(found.percent)) == (9, 8, 89)


def test_code_elsewhere_is_not_looked_at(module: ModuleType, tmp_path: Path) -> None:
    executed = Executed([tmp_path / "other"])
    with executed.watching():
        module.both(first=True)
    assert executed.lines == {}


@pytest.mark.slow
def test_the_lines_of_all_processes_are_put_together() -> None:
    jobs = [Job(seed, 3, steps=3000, looks_at_lines=True) for seed in range(2)]
    lines = {file: found for result in run_all(jobs, 2) for file, found in result.lines.items()}
    assert report(lines)["sharding_app/protocol/shard.py"].percent > 20


def test_the_command_tells_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("sharding_simulate", "--seeds", "1", "--steps", "2000", "--processes", "1", "--coverage")
    call_command(*options, "--json")
    told = json.loads(capsys.readouterr().out)["lines"]
    assert len(told) > 100
    shard = told["sharding_app/protocol/shard.py"]
    assert 0 < shard["executed"] < shard["lines"]
    assert all(part for part in shard["never"])
    call_command(*options)
    assert "sharding_app/protocol/shard.py" in capsys.readouterr().out
    assert all(folder.is_dir() for folder in FOLDERS)


def test_code_that_no_seed_executes_has_a_reason_and_tests() -> None:
    named = [file for each in unexecuted.groups() for file in each.where]
    assert len(named) == len(set(named))
    for file in named:
        assert (FOLDERS[0].parent / file).exists(), file
    page = unexecuted.PAGE.read_text(encoding="utf-8")
    for each in unexecuted.groups():
        assert f"| {each.what} |" in page, "python -m tests.simulation.unexecuted"
        for word in each.by.replace(",", "").split():
            assert not word.startswith("tests/") or (unexecuted.ROOT / word).exists(), word


def test_the_page_counts_the_lines_of_each_reason() -> None:
    (first, *_) = unexecuted.groups()[0].where
    lines = {
        f"sharding_app/{first}": {"lines": 10, "executed": 4},
        "sharding_app/runtime/other.py": {"lines": 1000, "executed": 999},
    }
    text = unexecuted.section(lines, 33)
    assert "33 seeds execute 1,003 of the 1,010 lines" in text
    assert "The other 1 lines are in 1 files, at most one in each." in text
    assert f"| {unexecuted.groups()[0].what} | 6 | `{first}`" in text


def test_the_page_counts_nearly_all_lines_that_there_are() -> None:
    """It is to be written anew when the code has grown."""
    counted = re.search(r"([\d,]+) lines of functions", unexecuted.PAGE.read_text(encoding="utf-8"))
    assert counted is not None
    files = [file for folder in FOLDERS for file in folder.rglob("*.py")]
    there = sum(len(lines_of(file.read_text(encoding="utf-8"))) for file in files)
    told = int(counted[1].replace(",", ""))
    assert abs(told - there) < there / 50, "python -m tests.simulation.unexecuted"
