"""The same client as the bad input tests have."""

from tests.badinput.conftest import client

__all__ = ["client"]
