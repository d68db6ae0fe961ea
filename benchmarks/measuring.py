"""How a peer is measured: by the very driver that `sharding_bench` uses, with the same entities and
callers.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import psycopg

from sharding_app.bench.database import FACTS
from sharding_app.bench.driving import Call, at_once

ROOT = Path(__file__).resolve().parents[1]
PYTHONPATH = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
"""What a peer's own processes need in their environment to import this package."""
ENTITIES = 1000
IN_FLIGHT = (1, 64, 1000)
SECONDS = 4.0
WARM_SECONDS = 1.0

Calls = Mapping[str, Call]
"""The call of each workload: it makes the operation of that number."""


class Peer(Protocol):
    """What a module of `benchmarks.peer` is."""

    NAME: str
    NOTE: str
    WORKLOADS: tuple[str, ...]
    MOST_IN_FLIGHT: int
    opened: Callable[[str], AbstractAsyncContextManager[Calls]]


def facts(url: str) -> dict[str, str]:
    """The settings by which the figures of two servers differ most."""
    with psycopg.connect(url, autocommit=True) as connection:
        return {name: str(_value(connection, f"SHOW {name}")) for name in FACTS}


def _value(connection: psycopg.Connection[tuple[Any, ...]], query: str) -> object:
    row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None


async def measure(
    peer: Peer, url: str, in_flight: tuple[int, ...] = IN_FLIGHT, seconds: float = SECONDS
) -> AsyncIterator[dict[str, Any]]:
    """One line for each workload and number of callers that the peer can have."""
    told = facts(url)
    async with peer.opened(url) as calls:
        for workload in peer.WORKLOADS:
            call = calls[workload]
            await at_once(call, min(64, peer.MOST_IN_FLIGHT), count=ENTITIES)
            await at_once(call, min(64, peer.MOST_IN_FLIGHT), seconds=min(WARM_SECONDS, seconds))
            for each in in_flight:
                if each > peer.MOST_IN_FLIGHT:
                    continue
                driven = await at_once(call, each, seconds=seconds)
                took = sorted(driven.seconds)
                yield {
                    "peer": peer.NAME, "workload": workload, "in_flight": each,
                    "ops_per_s": round(len(took) / driven.elapsed), "p50_ms": _ms(took, 0.5), "p99_ms": _ms(took, 0.99),
                    "client_cpu_us": round(driven.cpu_seconds / len(took) * 1e6, 1), "note": peer.NOTE, **told,
                }  # fmt: skip


def _ms(ordered: list[float], part: float) -> float:
    return float(f"{ordered[int(len(ordered) * part)] * 1e3:.4g}")
