"""Plants mistakes on purpose, which must be caught.

A simulation that finds nothing proves nothing until it is shown what it would find. `planted(name)` puts a mistake in
while the block runs; the run that breaks a promise then has done its work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sharding_app.simulation.mistakes import MISTAKES


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Let a mistake be in the code while the block runs."""
    mistake = MISTAKES[name]
    real = mistake.where.__dict__[mistake.name]
    setattr(mistake.where, mistake.name, mistake.make(real))
    try:
        yield
    finally:
        setattr(mistake.where, mistake.name, real)
