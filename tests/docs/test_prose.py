"""The pages read as engineers write: lines that fit a screen, and sentences that name their
subject.
"""

import re
from pathlib import Path

import pytest

from tests.docs.test_snippets import WRITTEN
from tests.house.words import unnamed

COLUMNS = 100
VAGUE = re.compile(r"\bso (?:many|long|much)\b", re.IGNORECASE)


def prose(text: str) -> list[tuple[int, str]]:
    """Number and text of each line that is not code."""
    found: list[tuple[int, str]] = []
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            code = not code
        elif not code:
            found.append((number, line))
    return found


def faults(text: str) -> list[str]:
    return [
        f"line {number}: {line}"
        for number, line in prose(text)
        if unnamed(line) or (not line.startswith("|") and (len(line) > COLUMNS or VAGUE.search(line)))
    ]


@pytest.mark.parametrize("document", WRITTEN, ids=lambda path: path.name)
def test_a_page_reads_as_prose(document: Path) -> None:
    assert faults(document.read_text()) == []


def test_a_long_line_and_a_subject_without_a_name_are_noticed() -> None:
    assert faults(f"# Title\n\n{'word ' * 21}\n") != []
    assert faults("Nobody is told.\n") == ["line 1: Nobody is told."]
    assert faults("Wait for so long.\n") == ["line 1: Wait for so long."]
    assert faults("| somebody |\n") == ["line 1: | somebody |"]
    assert faults(f"```\nnobody\n```\n| {'word ' * 21} |\nThe node reads `nobody`.\n") == []
