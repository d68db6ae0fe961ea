"""`manage.py sharding_projection` on PostgreSQL: what it shows, and what its orders do."""

import contextlib
import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from sharding_app.ports.projections import HandlerFailed
from tests.integration.adapters.django.projected import Payments, Writer, part
from tests.integration.adapters.django.test_projecting import writer as journal_writer

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "projected.Payments"
writer = journal_writer


def shows(*arguments: str) -> tuple[int, Any]:
    """Run the command; return its exit code and its JSON."""
    out, code = StringIO(), 0
    try:
        call_command("sharding_projection", *arguments, "--json", stdout=out)
    except SystemExit as end:
        code = int(str(end.code))
    except CommandError as error:
        code = error.returncode
    return code, json.loads(out.getvalue())


@pytest.fixture
def failing(writer: Writer) -> Callable[[], None]:
    """A projection that has handled one event, and fails at the next one of `alice`."""
    writer.append("alice", 1)
    writer.commit()
    work = part()
    work.take(0, 127)
    Payments.bad = {2}
    writer.append("alice", 2, 3)
    writer.commit()

    failed: list[bool] = []

    def turn() -> None:
        failed.append(True)
        work.take(0, 127, careful=len(failed) > 1)

    return turn


def test_it_shows_how_far_a_projection_has_come(failing: Callable[[], None]) -> None:
    code, found = shows()
    (shown,) = found["projections"]
    assert code == 0
    assert (shown["name"], shown["version"], shown["declared"]) == (NAME, 1, True)
    assert (shown["events"], shown["behind_events"], shown["waiting"]) == (1, 2, 0)
    assert [(each["first_slice"], each["last_slice"]) for each in shown["parts"]] == [(0, 127)]
    text = StringIO()
    call_command("sharding_projection", NAME, stdout=text)
    assert "PROJECTION" in text.getvalue()
    assert "0-127" in text.getvalue()


def test_orders_change_the_rows_and_are_noted(failing: Callable[[], None]) -> None:
    for order, paused in (("--pause", True), ("--resume", False)):
        assert shows(f"{NAME}:1", order)[0] == 0
        assert shows(NAME)[1]["projections"][0]["paused"] is paused
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT action, subject FROM sharding_decision WHERE action LIKE 'projection%' ORDER BY id"
        )
        assert cursor.fetchall() == [
            ("projection_pause", f"{NAME}:1"), ("projection_resume", f"{NAME}:1"),
        ]  # fmt: skip


@pytest.mark.parametrize("order", ["--remove", "--reset"])
def test_rows_that_are_held_for_too_long_are_told(
    failing: Callable[[], None], writer: Writer, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """To follow types, and to let them go, waits for the appends under way, but not for long."""
    if order == "--remove":  # of a version that the code here does not have
        monkeypatch.setattr("sharding_app.operations.projections.projections.all", dict)
    else:  # its types are not followed: another version was removed
        with connection.cursor() as cursor:
            cursor.execute("UPDATE sharding_type SET followed = false")
            cursor.execute("UPDATE sharding_shard SET followed = false")
    writer.connection.execute("SELECT 1 FROM sharding_shard FOR UPDATE")
    said = StringIO()
    with pytest.raises(CommandError) as caught:
        call_command("sharding_projection", f"{NAME}:1", order, "--yes", stdout=said)
    writer.connection.rollback()
    assert caught.value.returncode == 1
    assert "held rows of the types, or of their shards, for longer than 2 s" in str(caught.value)
    assert "Nothing is changed" in str(caught.value)
    assert shows(NAME)[1]["projections"][0]["events"] == 1


def test_wrong_orders_are_refused(failing: Callable[[], None]) -> None:
    for arguments, why in (
        (("projected.Other",), "No node has run"),
        ((f"{NAME}:7", "--pause"), "No node has run"),
        ((f"{NAME}:x",), "A version is a number"),
        (("--pause",), "Name the projection"),
        ((NAME, "--pause", "--resume"), "one order"),
        ((NAME, "--skip", "projected.Account", "alice"), "belong together"),
        ((NAME, "--reset"), "Add --yes"),
        ((NAME, "--remove", "--yes"), "would make it again"),
        ((NAME, "--retry", "projected.Account", "bob"), "does not wait"),
    ):
        code, found = shows(*arguments)
        assert code == 1, arguments
        assert why in found["error"], arguments


def test_the_timeline_keeps_no_ids_of_entities(failing: Callable[[], None]) -> None:
    for _ in range(2):
        with contextlib.suppress(HandlerFailed):
            failing()
    account = ("projected.Account", "alice")
    assert shows(NAME, "--retry", *account)[0] == 0
    assert shows(NAME, "--skip", *account, "--number", "2", "--yes")[0] == 0
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT action, split_part(detail, ',', 1) FROM sharding_decision WHERE action LIKE 'projection%' ORDER BY id"
        )
        assert cursor.fetchall() == [
            ("projection_retry", "projected.Account"), ("projection_skip", "projected.Account #2"),
        ]  # fmt: skip
