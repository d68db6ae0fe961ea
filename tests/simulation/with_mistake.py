"""Run tests with a planted mistake in the code: `pytest -p tests.simulation.with_mistake --mistake
NAME=TEST ... TEST ...`.

Each mistake is put in while the test runs that is named beside it, so that all that tests import is
as it is without it. A test that is parametrized is named without its parameters.
"""

import gc
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.simulation.planted import planted


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--mistake", metavar="NAME=TEST", action="append", required=True, help="a planted mistake and its test"
    )  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with ExitStack() as stack:
        for each in item.config.getoption("--mistake"):
            name, _, test = each.partition("=")
            if item.nodeid.partition("[")[0] == test:
                stack.enter_context(planted(name))
        result = yield
        # What a failed test has left open complains now, and not in the next one.
        gc.collect()
        return result
