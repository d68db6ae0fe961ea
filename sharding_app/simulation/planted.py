"""Plants mistakes on purpose, which must be caught.

A simulation that finds nothing proves nothing until it is shown what it would find. `planted(name)` puts a mistake in
while the block runs; the run that breaks a promise then has done its work.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sharding_app.simulation.mistakes import MISTAKES


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Let a mistake be in the code while the block runs."""
    mistake = MISTAKES[name]
    real = mistake.where.__dict__[mistake.name]
    wrong = mistake.make(real)
    takes_its_place(real, wrong, name)
    setattr(mistake.where, mistake.name, wrong)
    try:
        yield
    finally:
        setattr(mistake.where, mistake.name, real)


def takes_its_place(real: Any, wrong: Any, name: str) -> None:
    """Raise TypeError unless a mistake can be called as the real function is.

    One that raises at each call would be found as another mistake than the one that it is to be.
    """
    if inspect.iscoroutinefunction(real) != inspect.iscoroutinefunction(wrong):
        raise TypeError(f"the mistake {name} is awaited where the real one is not, or the other way round")
    parameters = inspect.signature(real).parameters.values()
    by_place = [
        each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    by_name = {each.name: None for each in parameters if each.kind is each.KEYWORD_ONLY}
    needed = [each for each in by_place if each.default is each.empty]
    signature = inspect.signature(wrong)
    for places, names in ((by_place, by_name), (needed, {})):
        try:
            signature.bind(*places, **names)
        except TypeError as error:
            raise TypeError(f"the mistake {name} cannot be called as the real one is: {error}") from None
