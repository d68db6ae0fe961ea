#!/usr/bin/env python
"""Run the demo site's commands, with servers of its own where none are given."""

import os
import sys

# Before anything that an old Python could stumble over: this file has to say one clear sentence
# there.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("This project needs Python 3.11 or newer; this is %d.%d." % sys.version_info[:2])  # noqa: UP031
if sys.platform == "win32":
    sys.exit("This project runs on Linux and macOS; on Windows, use WSL (wsl --install), and run it there.")

# These look at code and settings only. Everything else finds its servers running.
WITHOUT_SERVERS = {
    "check",
    "collectstatic",
    "compilemessages",
    "diffsettings",
    "findstatic",
    "help",
    "makemessages",
    "makemigrations",
    "sendtestemail",
    "sharding_schema",
    "sharding_simulate",
    "startapp",
    "startproject",
    "version",
}


def needs_servers(arguments: list[str]) -> bool:
    """Tell whether a command line works with the database or Redis."""
    if not arguments or {"-h", "--help", "--version"} & set(arguments):
        return False
    return arguments[0] not in WITHOUT_SERVERS or any(each.startswith("--database") for each in arguments)


def main() -> None:
    """Start servers if the command needs them and none are given, then let Django go on."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.demo")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        sys.exit(
            f"{error.name or 'Django'} is not installed in {sys.executable}: "
            "run `python3 -m venv .venv && .venv/bin/python -m pip install -qr requirements.txt` "
            "and use .venv/bin/python."
        )
    if needs_servers(sys.argv[1:]):
        from project.settings.base import DATA_FOLDER
        from sharding_app.embedded import ServersError, ensure_servers

        try:
            ensure_servers(DATA_FOLDER, announce=True)
        except ServersError as error:
            sys.stderr.write(f"{error}\n")
            sys.exit(2)
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
