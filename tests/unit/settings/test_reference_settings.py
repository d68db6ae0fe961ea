"""Every setting of the reference has its counterpart on the page for those who come from there, or
a line that says why it needs none.
"""

import dataclasses
import inspect
import re
from collections import Counter
from pathlib import Path

from sharding_app import (
    AdmissionWindow,
    ClusterSingleton,
    ConsistentHashAllocation,
    FrequencyFilter,
    Passivation,
    ShardingSettings,
    SingletonProxy,
    WindowClimbing,
)
from sharding_app.settings.load import FIELDS

NAMES = Path(__file__).with_name("reference_settings.txt").read_text().splitlines()
PAGE = Path(__file__).resolve().parents[3] / "docs" / "coming-from-akka.md"
SECTION = PAGE.read_text().partition("## The reference's settings")[2]
ROWS = re.findall(r"^\| (?!there \|)([^|]+?) \| (.+?) \|$", SECTION, re.MULTILINE)


def test_no_row_is_missing_or_there_twice() -> None:
    assert Counter(name for name, _ in ROWS) == Counter(NAMES)
    assert len(NAMES) > 150


def test_each_row_names_what_exists_or_says_why_nothing_does() -> None:
    settings = (ShardingSettings, Passivation, AdmissionWindow, FrequencyFilter, WindowClimbing)
    attributes = {field.name for each in settings for field in dataclasses.fields(each)} | set(FIELDS)
    attributes |= set(inspect.signature(ClusterSingleton.start).parameters)
    attributes |= set(inspect.signature(SingletonProxy).parameters)
    for name, here in ROWS:
        keys = re.findall(r"`([A-Z][A-Z_]{3,})`", here)
        assert set(keys) - {"LOGGING"} <= set(FIELDS), name
        assert set(re.findall(r"(\w+)=(?!Sharding)", here)) <= attributes | {"settings", "thread"}, name
        says_why = here.startswith(("none needed", "later: "))
        counterpart = "`" in here or "given to" in here
        assert says_why or counterpart, name
        assert len(here) >= 8, name
    assert inspect.signature(ConsistentHashAllocation).parameters.keys() >= {"rebalance_limit"}


def test_what_comes_later_is_only_what_a_later_release_is_for() -> None:
    waiting = {here for _, here in ROWS if here.startswith("later")}
    assert {each.partition(" are not")[0] for each in waiting} == {"later: data centres"}
