"""What the dashboard costs: `python -m tests.browser.measure` (1,000 shards, 100,000 entities, 50
loads, 5 rounds).

* How long each main page takes to load, at the browser's side of the site, while nothing else is
  asked for.
* How many commands a second the cluster takes with three dashboards open, and without, in turns.

`--entities`, `--loads`, `--rounds` and `--seconds` make it shorter.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

import websocket

from tests.browser.site import Cluster
from tests.browser.standing import full_rate, standing

DASHBOARDS = ("", "types/{shop.Cart}/", "nodes/")
AGAIN_SECONDS = 1.0
"""Longer than a look is kept, so that each load takes one of its own."""


def page(cluster: Cluster, where: str) -> str:
    return where.replace("{shop.Cart}", str(cluster.types["shop.Cart"]))


def load(cluster: Cluster, where: str) -> float:
    """One load, in seconds."""
    request = Request(  # noqa: S310 - our own site
        cluster.root + page(cluster, where), headers={"Cookie": f"sessionid={cluster.sessions['root']}"}
    )
    began = time.monotonic()
    with urlopen(request, timeout=30) as answer:  # noqa: S310
        body = answer.read()
    took = time.monotonic() - began
    assert b'id="sharding"' in body
    return took


@contextmanager
def open_dashboards(cluster: Cluster) -> Iterator[list[int]]:
    """Three browsers' worth of live updates; how many messages each of them has got."""
    heard = [0] * len(DASHBOARDS)
    sockets = []
    address = f"{cluster.site.replace('http', 'ws', 1)}sharding/live/"
    for number, where in enumerate(DASHBOARDS):
        socket = websocket.create_connection(
            address,
            cookie=f"sessionid={cluster.sessions['root']}",
            origin=cluster.site.rstrip("/"),
            timeout=30,
        )
        socket.send(json.dumps({"page": page(cluster, where), "site": "admin", "language": "en"}))
        sockets.append(socket)

        def listen(number: int = number, socket: websocket.WebSocket = socket) -> None:
            try:
                while socket.recv():
                    heard[number] += 1
            except (websocket.WebSocketException, OSError):
                return

        threading.Thread(target=listen, daemon=True).start()
    try:
        yield heard
    finally:
        for socket in sockets:
            socket.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--loads", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    asked = parser.parse_args()
    with standing(asked.entities) as cluster:
        for where in DASHBOARDS:
            load(cluster, where)
            taken = []
            for _ in range(asked.loads):
                time.sleep(AGAIN_SECONDS)
                taken.append(load(cluster, where) * 1000)
            p95 = sorted(taken)[int(len(taken) * 0.95)]
            print(
                f"/{where}: p50 {statistics.median(taken):.0f} ms, p95 {p95:.0f} ms over {len(taken)} loads",
                flush=True,
            )
        without, watched = [], []
        for number in range(asked.rounds):
            # The order changes, so that what grows meanwhile (the journal) counts for both.
            for watching in (False, True) if number % 2 else (True, False):
                if watching:
                    with open_dashboards(cluster) as heard:
                        watched.append(full_rate(cluster, asked.seconds))
                        assert all(heard), "each dashboard has got news"
                else:
                    without.append(full_rate(cluster, asked.seconds))
        mine, theirs = statistics.median(watched), statistics.median(without)
        print(f"commands/s: {theirs:.0f} without, {mine:.0f} with three dashboards open: {mine / theirs:.1%}")


if __name__ == "__main__":
    main()
