"""Logging that raises nothing into the engine.

A filter or handler of the project's may raise. Python passes that on to the code that logs, and the
engine logs in the middle of its work: behind it the caller would get no answer, and later messages
would wait for ever. So the engine's loggers report such an error on the standard error, as Python
does for the errors of its own handlers.
"""

import logging
import sys
import traceback

NAMES = (
    "sharding.client",
    "sharding.coordinator",
    "sharding.entity",
    "sharding.journal",
    "sharding.lease",
    "sharding.lifeline",
    "sharding.node",
    "sharding.projection",
    "sharding.region",
    "sharding.transport",
    "sharding.worker",
)


class SteadyLogger(logging.Logger):
    """A logger whose filters and handlers raise nothing into the code that logs."""

    def handle(self, record: logging.LogRecord) -> None:
        """Handle a record; report an error of a filter or handler."""
        try:
            super().handle(record)
        except Exception:  # noqa: BLE001 (told where Python tells the errors of its own handlers)
            if logging.raiseExceptions and sys.stderr is not None:
                sys.stderr.write(f"a filter or handler of the logger {self.name} raised:\n")
                # Without the chain: the error of the entity may be confidential.
                traceback.print_exc(file=sys.stderr, chain=False)


def steady() -> None:
    """Make the engine's loggers steady, unless the project has loggers of a class of its own."""
    for name in NAMES:
        logger = logging.getLogger(name)
        if type(logger) is logging.Logger:
            logger.__class__ = SteadyLogger
