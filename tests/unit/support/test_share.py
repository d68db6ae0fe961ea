"""Tests of real faults that want the machine for themselves: they wait for the others, and the
later ones wait for them.
"""

import fcntl
import threading
from pathlib import Path

from tests.acceptance.share import share_of_machine
from tests.support.live import until


def test_one_that_runs_alone_waits_and_is_waited_for(tmp_path: Path) -> None:
    order: list[str] = []
    later_waits = threading.Event()

    def alone() -> None:
        with share_of_machine(alone=True, folder=tmp_path):
            order.append("alone begins")
            later_waits.wait()
            order.append("alone ends")

    def later() -> None:
        later_waits.set()
        with share_of_machine(alone=False, folder=tmp_path):
            order.append("later")

    threads = [threading.Thread(target=each) for each in (alone, later)]
    with share_of_machine(alone=False, folder=tmp_path):
        with share_of_machine(alone=False, folder=tmp_path):
            order.append("two at once")
        threads[0].start()
        until(lambda: _is_taken(next(tmp_path.glob("*.turn"))), 60, "the one that runs alone waits")
        threads[1].start()
        later_waits.wait()
        assert order == ["two at once"]
    for each in threads:
        each.join()
    assert order == ["two at once", "alone begins", "alone ends", "later"]


def _is_taken(path: Path) -> bool:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
