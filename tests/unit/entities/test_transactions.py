"""Refs inside ``transaction.atomic()``: an ask warns, a tell waits for the commit. On real
connections, of SQLite.
"""

import contextlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.db.utils import ConnectionHandler

from sharding_app.entities.gateway import use_gateway
from sharding_app.errors import BufferFull
from sharding_app.protocol.call import Call
from sharding_app.testing.local import LocalGateway
from tests.support.slack import SLACK
from tests.unit.entities.cart import Cart


@pytest.fixture
def connections(
    monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any, tmp_path: Path
) -> Iterator[ConnectionHandler]:
    handler = ConnectionHandler(
        {
            name: {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / name}
            for name in ("default", "other")
        }
    )
    monkeypatch.setattr("django.db.connections", handler)
    monkeypatch.setattr("django.db.transaction.connections", handler, raising=False)
    monkeypatch.setattr(transaction, "get_connection", lambda using=None: handler[using or "default"])
    with django_db_blocker.unblock(), use_gateway(LocalGateway()):
        yield handler
        handler.close_all()


@pytest.mark.usefixtures("connections")
def test_an_ask_inside_a_transaction_warns() -> None:
    with (
        transaction.atomic(),
        pytest.warns(RuntimeWarning, match=r"inside transaction.atomic\(\) on 'default'"),
    ):
        assert Cart.ref("a").sync.add("book") == 1


@pytest.mark.usefixtures("connections")
def test_an_ask_outside_does_not_warn() -> None:
    with transaction.atomic():
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Cart.ref("a").sync.add("book") == 1


@pytest.mark.usefixtures("connections")
def test_a_tell_waits_for_the_commit() -> None:
    with transaction.atomic():
        Cart.ref("a").add.tell("book")
        assert Cart.ref("a").sync.exists() is False
    assert Cart.ref("a").sync.total() == 1


@pytest.mark.usefixtures("connections")
def test_a_tell_of_a_transaction_that_rolls_back_is_not_sent() -> None:
    def fail() -> None:
        with transaction.atomic():
            Cart.ref("a").add.tell("book")
            raise RuntimeError("rolled back")

    with pytest.raises(RuntimeError, match="rolled back"):
        fail()
    assert Cart.ref("a").sync.exists() is False


def write_in_both(entity: str, fails: str) -> None:
    """Tell inside transactions of two databases, one of which is rolled back."""
    with contextlib.suppress(LookupError), transaction.atomic("default"):
        with contextlib.suppress(LookupError), transaction.atomic("other"):
            Cart.ref(entity).add.tell("book")
            if fails == "other":
                raise LookupError
        assert Cart.ref(entity).sync.exists() is False
        if fails == "default":
            raise LookupError


@pytest.mark.parametrize("first", ["default", "other"])
@pytest.mark.filterwarnings("ignore:.*is asked inside")
def test_a_tell_inside_transactions_of_two_databases_waits_for_both(
    connections: ConnectionHandler, first: str
) -> None:
    connections[first].ensure_connection()
    for fails in ("default", "other", ""):
        write_in_both(f"fails {fails}", fails)
    assert [Cart.ref(f"fails {each}").sync.total() for each in ("default", "other", "")] == [0, 0, 1]


@pytest.mark.usefixtures("connections")
def test_a_tell_that_cannot_be_sent_at_the_commit_costs_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error would be taken for the transaction's, and a view that is asked again would write
    its rows twice.
    """
    real, calls = LocalGateway.tell, []

    def tell(self: LocalGateway, call: Call) -> None:
        calls.append(call.entity)
        if call.entity == "full":
            raise BufferFull("slow down")
        real(self, call)

    monkeypatch.setattr(LocalGateway, "tell", tell)
    with transaction.atomic():
        Cart.ref("full").add.tell("book")
        Cart.ref("a").add.tell("book")
        transaction.on_commit(lambda: calls.append("a hook"))
    assert calls == ["full", "a", "a hook"]
    assert Cart.ref("a").sync.total() == 1
    assert [(each.__dict__["action"], each.message) for each in caplog.records] == [
        (
            "dropped",
            "a command that was told inside transaction.atomic() could not be sent at the commit: slow down",
        )
    ]


@pytest.mark.usefixtures("connections")
def test_a_tell_may_be_sent_at_once() -> None:
    with transaction.atomic():
        Cart.ref("a", on_commit=False).add.tell("book")
        assert Cart.ref("a").sync.exists() is True


@pytest.mark.usefixtures("connections")
def test_the_block_around_a_test_case_does_not_count() -> None:
    block: Any = transaction.atomic()
    block._from_testcase = True
    with block, warnings.catch_warnings():
        warnings.simplefilter("error")
        Cart.ref("a").add.tell("book")
        assert Cart.ref("a").sync.total() == 1


def test_no_connection_is_opened(connections: ConnectionHandler) -> None:
    Cart.ref("a").add.tell("book")
    assert connections.all(initialized_only=True) == []


EARLIER = """
import threading
import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["sharding_app"], SECRET_KEY="x",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()
from django.db import connection, transaction
from sharding_app.entities import transactions

opened, looked, sent = threading.Event(), threading.Event(), []

def request():
    connection.ensure_connection()
    opened.set()
    assert looked.wait(10)
    with transaction.atomic():
        assert transactions.at_commit(lambda: sent.append("sent"))
        assert sent == []
    connection.close()

thread = threading.Thread(target=request)
thread.start()
assert opened.wait(10)
transactions.find_open()  # the first look of this process, on another thread
looked.set()
thread.join()
print(sent)
"""


def test_a_connection_that_another_thread_opened_before_the_first_call_counts() -> None:
    done = subprocess.run([sys.executable, "-c", EARLIER], capture_output=True, text=True, timeout=60 * SLACK)
    assert done.stdout == "['sent']\n", done.stderr
