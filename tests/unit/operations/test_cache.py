"""Looks at the cluster are shared: one at a time, whether it can be had or not."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import DatabaseError

from sharding_app.operations.cache import Collector, Unreachable
from sharding_app.operations.snapshot import ClusterSnapshot
from tests.support.slack import SLACK

VIEWERS = 8
SECONDS = 10.0 * SLACK


def test_viewers_who_wait_for_a_look_that_fails_do_not_wait_for_one_each() -> None:
    """A slow server needs seconds for each: the last viewer would wait for all of them in a row."""
    have_come = threading.Semaphore(0)
    reads: list[None] = []
    times: list[None] = []

    def read() -> ClusterSnapshot:
        reads.append(None)
        for _ in range(VIEWERS if len(reads) == 1 else 0):
            assert have_come.acquire(timeout=SECONDS)
        raise DatabaseError("it takes too long")

    def clock() -> float:
        times.append(None)
        have_come.release()
        return float(len(times))

    looks = Collector(read=read, clock=clock)

    def view() -> str:
        with pytest.raises(Unreachable) as caught:
            looks.look()
        return str(caught.value)

    with ThreadPoolExecutor(VIEWERS) as threads:
        found = [each.result(SECONDS) for each in [threads.submit(view) for _ in range(VIEWERS)]]
    assert all("it takes too long" in each for each in found)
    assert len(reads) == 1
    with pytest.raises(Unreachable):
        looks.look()
    assert len(reads) == 2, "who comes later looks anew"
