"""A node with a key, on real servers: what strangers put into Redis changes nothing, and nothing
secret is said.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from sharding_app import InvalidCall, NotSerializable, ShardingError
from tests.badinput.app.entities import Ledger
from tests.security.conftest import KEY, PRODUCTION
from tests.support.live import Live, Program, look_again, until

SECRET = "4111-1111-1111-1111"
Heard = list[tuple[bytes, bytes]]


@contextmanager
def recording(url: str) -> Iterator[tuple[Heard, redis.Redis]]:
    """Record all that goes through Redis, as any client of it may hear it; and give a way to say
    it again.
    """
    heard: Heard = []
    ended = threading.Event()
    with redis.Redis.from_url(url) as speaker, redis.Redis.from_url(url) as listener:
        ears = listener.pubsub(ignore_subscribe_messages=True)
        ears.psubscribe("*")

        def listen() -> None:
            while not ended.is_set():
                if (message := ears.get_message(timeout=0.05)) is not None:
                    heard.append((message["channel"], message["data"]))

        thread = threading.Thread(target=listen)
        thread.start()
        until(lambda: speaker.pubsub_numpat(), 5, "the listener is there")
        try:
            yield heard, speaker
        finally:
            ended.set()
            thread.join()
            ears.close()


def rows(live: Live) -> int:
    with psycopg.connect(live.database_url) as connection:
        found = connection.execute("SELECT count(*) FROM sharding_event").fetchone()
    assert found is not None
    return int(found[0])


def test_what_is_said_again_and_what_is_forged_changes_nothing(quiet_node: tuple[Live, Program]) -> None:
    live, node = quiet_node
    ledger = Ledger.ref("replayed").sync
    assert ledger.book(1) == 1
    with recording(live.redis_url) as (heard, speaker):
        for number in range(2, 12):
            assert ledger.book(1) == number
        # What is authenticated only can be read.
        until(lambda: any(b"replayed" in data for _, data in heard), 5, "the calls are heard")
        said = list(heard)
        before = rows(live)
        for _ in range(3):
            for channel, data in said:
                speaker.publish(channel, data)
        for place, (channel, data) in itertools.product(range(0, 200, 7), said[:6]):
            changed = bytearray(data)
            changed[place % len(changed)] ^= 0x55
            speaker.publish(channel, bytes(changed))
        for channel in {channel for channel, _ in said}:
            for garbage in (b"", b"\xc1", b"\x00" * 100_000, b"\x91" * 10_000, b'{"type":"sharding.frame"}'):
                speaker.publish(channel, garbage)
        assert ledger.total() == 11, "it answers as before"
        assert ledger.book(1) == 12
        assert rows(live) == before + 1, "nothing was done twice"
    assert node.process.poll() is None


def test_no_secret_and_no_payload_is_said(
    quiet_node: tuple[Live, Program], caplog: pytest.LogCaptureFixture
) -> None:
    """Arguments, events, what cannot be stored, keys and passwords: not in logs, errors or
    figures.
    """
    live, node = quiet_node
    errors: list[ShardingError] = []
    ledger = Ledger.ref("discreet").sync
    with caplog.at_level(logging.DEBUG, "sharding"), recording(live.redis_url) as (heard, speaker):
        ledger.note(1, SECRET)
        for wrong in ([SECRET], {"amount": SECRET}):
            with pytest.raises(InvalidCall) as refused:
                ledger.book(wrong)  # type: ignore[arg-type]
            errors.append(refused.value)
        with pytest.raises(NotSerializable) as failed:
            ledger.note(1, f"NUL{SECRET}")
        errors.append(failed.value)
        for channel, data in list(heard):
            speaker.publish(channel, data[:-1] + b"!")
        assert ledger.total() == 1
    status = look_again(live.manage, "sharding_status", "--json", seconds=60.0, **PRODUCTION)
    assert status.returncode == 0, status.stderr
    said = "\n".join([node.text, caplog.text, status.stdout, status.stderr, *map(str, errors)])
    secrets = {SECRET, KEY, urlsplit(live.database_url).password, urlsplit(live.redis_url).password}
    assert None not in secrets
    assert not [each for each in secrets if each and each in said], said
