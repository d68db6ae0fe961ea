"""The protocol, message by message and row by row, is as its scripts say
(`tests/simulation/golden`), and so are the pictures of it.

`--rewrite-golden` writes the scripts, their page and the pictures anew.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

from tests.simulation.golden import picture
from tests.simulation.golden.page import PAGE, SCRIPTS, page_of, path_of
from tests.simulation.golden.plays import PLAYS
from tests.simulation.hash_seeds import outputs
from tests.simulation.planted import planted

ALL = """
from tests.simulation.golden.plays import PLAYS
print(*(script() for script in PLAYS.values()))
"""


@pytest.fixture(scope="module")
def rewrites(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--rewrite-golden"))


@pytest.mark.parametrize("name", PLAYS)
def test_a_script_is_what_happens(name: str, rewrites: bool) -> None:
    script = PLAYS[name]()
    if rewrites:
        path_of(name).write_text(script)
    assert path_of(name).read_text() == script, "was the protocol meant to change? --rewrite-golden"


def test_no_script_is_left_over() -> None:
    assert sorted(SCRIPTS.iterdir()) == sorted(map(path_of, PLAYS))


def test_the_page_holds_all_scripts(rewrites: bool) -> None:
    page = page_of({name: path_of(name).read_text() for name in PLAYS})
    if rewrites:
        PAGE.write_text(page)
    assert PAGE.read_text() == page


@pytest.mark.parametrize("name", picture.PICTURED)
def test_a_picture_shows_its_script(name: str, rewrites: bool) -> None:
    drawn = picture.picture_of(path_of(name).read_text())
    if rewrites:
        picture.path_of(name).write_text(drawn)
    assert picture.path_of(name).read_text() == drawn


def test_no_picture_is_left_over_and_each_is_explained() -> None:
    there = sorted(picture.IMAGES.glob("protocol-*.svg"))
    assert there == sorted(map(picture.path_of, picture.PICTURED))
    text = (PAGE.parent / "protocol.md").read_text()
    shown = [
        line.partition("](images/")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")
    ]
    assert shown == [picture.path_of(name).name for name in picture.PICTURED]


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float
    text: str

    def overlaps(self, other: Box) -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.bottom <= other.top or other.bottom <= self.top)


def boxes(svg: str) -> list[Box]:
    """The room that each text of a picture takes."""
    found = []
    for each in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):  # noqa: S314  (our own)
        text, x, y = each.text or "", float(each.attrib["x"]), float(each.attrib["y"])
        width = len(text) * picture.CHARACTER
        left = x if each.attrib["text-anchor"] == "start" else x - width / 2
        found.append(Box(left, y - 10, left + width, y + 3, text))
    return found


@pytest.mark.parametrize("name", PLAYS)
def test_no_text_of_a_picture_covers_another_or_leaves_it(name: str) -> None:
    svg = picture.picture_of(path_of(name).read_text())
    texts = boxes(svg)
    assert [pair for pair in combinations(texts, 2) if pair[0].overlaps(pair[1])] == []
    _, _, width, height = map(float, ET.fromstring(svg).attrib["viewBox"].split())  # noqa: S314
    assert [
        each.text
        for each in texts
        if min(each.left, each.top) < 0 or each.right > width or each.bottom > height
    ] == []


def test_every_line_of_a_script_is_in_its_picture() -> None:
    """All but the decisions, which are for people."""
    script = path_of("hand_off").read_text()
    svg = picture.picture_of(script)
    assert svg.count('class="message"') == sum(" -> " in line[:16] for line in script.splitlines())
    assert svg.count('class="read"') == sum(" reads " in line[:16] for line in script.splitlines())
    assert "epoch\xa01 → 2" not in svg, "a change is no field"
    assert "epoch 1 → 2, home n1 → n2" in svg


def test_a_script_does_not_depend_on_the_hash_seed() -> None:
    assert len(outputs(ALL)) == 1


@pytest.mark.parametrize(
    ("mistake", "name"),
    [
        ("answer_before_commit", "known_home"),
        ("handed_back_goes_last", "hand_off"),
        ("gone_is_not_told", "failover"),
        ("epoch_check_off", "late_write"),
        ("term_check_off", "late_decision"),
        ("resume_on_greater_epoch", "lease_return"),
        ("buried_are_not_told", "lease_loss"),
        ("retries_are_not_looked_up", "retried_command"),
        ("remembered_not_recalled", "remembered_restart"),
        ("delivers_before_the_commit", "durable_message"),
        ("confirms_before_the_effect", "durable_message"),
    ],
)
def test_a_planted_mistake_changes_a_script(mistake: str, name: str) -> None:
    with planted(mistake):
        assert PLAYS[name]() != path_of(name).read_text()
