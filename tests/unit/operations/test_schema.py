"""The lock file: what each change of a declaration breaks, and no harmless change is reported."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from sharding_app.entities.registry import messages, registry
from sharding_app.operations.schema import lock
from sharding_app.operations.schema.compare import Finding, breaks
from sharding_app.operations.schema.lock import Lock

BEFORE = """
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from sharding_app import DurableState, EventSourced, Personal, applies, command, event, message, query, upcasts

@event
class Line:
    sku: str
    cents: int

@event
class Paid:
    amount: Decimal
    by: Literal["cash", "card"]
    lines: list[Line]
    place: str
    note: str = ""

@event(version=2)
class Closed:
    at: datetime

@upcasts(Closed, from_version=1)
def closed_1(fields): return fields

class Till(EventSourced, name="shop.Till"):
    total: int
    ignore_events = ()
    def __init__(self) -> None: self.total = 0
    @command
    def pay(self, amount: Decimal, by: str = "cash") -> None: ...
    @query
    def current(self) -> int: return self.total
    @applies(Paid)
    def on_paid(self, happened: Any) -> None: ...
    @applies(Closed)
    def on_closed(self, happened: Any) -> None: ...

class Price(DurableState, name="shop.Price"):
    cents: int = 0
    @command
    def change(self, cents: int) -> None: ...

@message(name="shop.Ping")
class Ping:
    number: int
"""


def lock_of(source: str) -> Lock:
    module = types.ModuleType("shop_of_this_test")
    with registry.isolated(), messages.isolated(), pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        before = {*registry.all(), *messages.all()}
        exec(source, vars(module))  # noqa: S102 - the test's own text
        ours: list[Any] = [each for name, each in registry.all().items() if name not in before]
        return lock.describe(ours, [each for name, each in messages.all().items() if name not in before])


def found(*changes: tuple[str, str], trimmed: frozenset[str] = frozenset()) -> list[Finding]:
    source = BEFORE
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    # As it was written to a file, and read from it.
    then: Lock = json.loads(lock.text(lock_of(BEFORE)))
    return breaks(then, lock_of(source), snapshots_of=frozenset({"shop.Till"}), trimmed=trimmed)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    note: str", "    shop: str\n    note: str", r"event shop.Till.Paid: shop is new and has no default.*version=2"),
        ("    place: str\n", "", r"Paid: place is removed, and nodes of the former release.*default first"),
        ("    note: str = \"\"", "    note: str", r"Paid: note has lost its default"),
        ("    amount: Decimal\n", "    amount: bool\n", r"Paid: amount was decimal and is bool\..*@upcasts\(Paid, from_version=1\)"),
        ('["cash", "card"]', '["cash"]', r"Paid: by no longer allows 'card'"),
        ("    cents: int\n\n@event\n", "    cents: str\n\n@event\n", r"Paid: lines\[of\]\.cents was int and is str"),
        ("@event\nclass Paid:", "@event(name='Payment')\nclass Paid:", r"Till.Paid: no event has this name.*Payment has the same fields.*@event\(name='Paid'\)"),
        ("    @applies(Closed)\n", "", r"Closed: no event has this name.*list 'Closed' in ignore_events"),
        ("version=2)", "version=3)", r"Closed: records of version 2 cannot be read.*from_version=2"),
        ("@upcasts(Closed, from_version=1)\n", "", r"Closed: records of version 1 cannot be read"),
        ("    total: int\n", "    total: int\n    count: int\n", r"snapshot shop.Till: count is new.*snapshot_version = 2"),
        ("    amount: Decimal\n", "    amount: Personal[Decimal]\n",
            r"Paid: amount was decimal and is Personal: values that are stored stay readable, .*an erasure does not reach them\..*@upcasts"),
        ("    total: int\n", "    total: str\n", r"snapshot shop.Till: total was int and is str"),
        ("    cents: int = 0", '    cents: str = ""', r"state shop.Price: cents was int and is str.*define snapshot"),
        ("def pay(", "def charge(", r"command shop.Till.pay: it is removed, and durable messages and timers may wait"),
        ("    @query\n    def current(self) -> int: return self.total\n", "", r"query shop.Till.current: it is removed\. Keep"),
        ("    @command\n    def change", "    @query\n    def change", r"change: it is a query now"),
        ("amount: Decimal, by", "amount: Decimal, tip: int, by", r"Till.pay: .*by was.*|argument tip"),
        (', by: str = "cash"', "", r"Till.pay: it takes 1 arguments, and took 2"),
        ("amount: Decimal, by: str", "by: str, amount: Decimal", r"Till.pay: its arguments stand in another order"),
        ('by: str = "cash")', 'by: str = "cash", *, tip: int)', r"Till.pay: argument tip is new and has no default"),
        ('by: str = "cash"', 'tip: int = 0, by: str = "cash"', r"Till.pay: argument by was number 2 and is number 3\..*at the end"),
        ('by: str = "cash"', 'shop: str = "", *, by: str = "cash"', r"Till.pay: argument by was number 2 and is number 3\."),
        ("    cents: int = 0", "    currency: str = ''", r"state shop.Price: cents is removed, and each entity loses its value"),
        ('name="shop.Till"', 'name="shop.CashDesk"', r"entity shop.Till: no class.*shop.CashDesk looks like it.*name='shop.Till'"),
        ("class Price(DurableState", "class Price(EventSourced", r"entity shop.Price: it was durable_state and is event_sourced"),
        ("    number: int", "    number: int\n    text: str", r"message shop.Ping: text is new and has no default"),
        ('"shop.Ping"', '"shop.Pong"', r"message shop.Ping: no class has this name.*@message\(name='shop.Ping'\)"),
    ],
)  # fmt: skip
def test_a_change_that_breaks_is_found_with_a_way_to_make_it(old: str, new: str, expected: str) -> None:
    said = [str(each) for each in found((old, new))]
    assert any(re.search(expected, each) for each in said), said


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ("", r"count is new, .*Its events are deleted behind snapshots: define snapshot\(\).*--accept it"),
        ("    snapshot_version = 2\n", r"its version is raised, and the older snapshots are all .*Keep snapshot_version = 1"),
    ],
)  # fmt: skip
def test_a_snapshot_without_events_behind_it_has_to_stay_readable(new: str, expected: str) -> None:
    change = "    total: int\n", f"    total: int\n    count: int\n{new}"
    (said,) = map(str, found(change, trimmed=frozenset({"shop.Till"})))
    assert re.search(expected, said), said


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [('note: str = ""', 'note: str | None = ""\n    more: int = 0')],
        [("amount: Decimal\n", "amount: Decimal | None\n")],
        [("    note: str = \"\"\n", "")],
        [('["cash", "card"]', '["card", "cash", "cheque"]')],
        [("list[Line]", "tuple[Line, ...]")],
        [("class Line:\n    sku: str\n    cents: int", "class Line:\n    sku: str\n    cents: float")],
        [("class Paid:", "class Payment:"), ("@event\nclass Payment", "@event(name='Paid')\nclass Payment"), ("(Paid)", "(Payment)")],
        [("    @applies(Closed)\n", ""), ("ignore_events = ()", 'ignore_events = ("Closed",)')],
        [
            ("version=2)", "version=3)"), ("at: datetime", "at: str\n    by: int"),
            ("class Till", "@upcasts(Closed, from_version=2)\ndef closed_2(fields): return fields\n\nclass Till"),
        ],
        [("    total: int\n", "    total: str\n    count: int\n    snapshot_version = 2\n")],
        [("    cents: int = 0", "    cents: int = 0\n    currency: str = ''")],
        [('by: str = "cash")', 'by: str | None = "cash", tip: int = 0)')],
        [("class Ping:", "@message(name='shop.Pong')\nclass Pong:\n    number: int\n\n@message(name='shop.Ping')\nclass Ping:"),
         ('@message(name="shop.Ping")\n', "")],
    ],
)  # fmt: skip
def test_a_change_that_breaks_nothing_is_not_reported(changes: list[tuple[str, str]]) -> None:
    assert found(*changes) == []


def test_the_file_is_written_checked_and_not_overwritten_by_what_breaks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sharding.lock.json"

    def run(*arguments: str) -> tuple[int, str]:
        try:
            call_command("sharding_schema", f"--file={file}", *arguments)
        except SystemExit as end:
            return int(str(end.code)), capsys.readouterr().out
        return 0, capsys.readouterr().out

    assert run("--check") == (1, f"{file} is missing. Run: manage.py sharding_schema\n")
    assert run() == (0, f"{file} is written.\n")
    assert run("--check")[0] == 0
    written = file.read_text()
    assert '\n  "shop.Cart.ItemAdded": {"fields": ' in written, "one entry a line"

    file.write_text(written.replace('"shop.Cart.add"', '"shop.Cart.put"'))
    code, said = run()
    assert code == 1
    assert said.startswith("command shop.Cart.put: it is removed")
    assert said.endswith("If all of this is meant, run: manage.py sharding_schema --accept\n")
    assert file.read_text() != written
    report = json.loads(run("--check", "--json")[1])
    assert [each["where"] for each in report["breaks"]] == ["command shop.Cart.put"]
    assert run("--accept")[0] == 0
    assert file.read_text() == written
