"""Run tests with a planted mistake in the code: `pytest -p tests.simulation.with_mistake --mistake
NAME ...`.

It is put in when the tests are collected, so that all that they import is as it is without it.
"""

from collections.abc import Iterator

import pytest

from tests.simulation.planted import planted


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mistake", metavar="NAME", required=True, help="the planted mistake")


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    with planted(session.config.getoption("--mistake")):
        return (yield)
