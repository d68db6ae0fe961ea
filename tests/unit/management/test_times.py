"""Options that are times: none waits for a time that never comes."""

from argparse import ArgumentTypeError
from itertools import chain

import pytest
from django.core.management import get_commands, load_command_class

COMMANDS = sorted(name for name, app in get_commands().items() if app == "sharding_app")


def test_each_refuses_what_is_no_finite_number() -> None:
    parsers = [load_command_class("sharding_app", name).create_parser("manage.py", name) for name in COMMANDS]
    options = [each for each in chain(*(parser._actions for parser in parsers)) if each.metavar == "SECONDS"]
    assert len(options) > 9
    for option in options:
        assert callable(option.type)
        for text in ("nan", "inf", "-inf", "soon"):
            with pytest.raises((ValueError, ArgumentTypeError)):
                option.type(text)
        assert option.type("2") == 2
