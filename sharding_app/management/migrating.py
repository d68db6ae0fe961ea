"""Applies missing migrations in the commands for development, so that `migrate` is not needed
first.
"""

from collections.abc import Callable

from django.core.management import call_command
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor

from sharding_app.operations.connectivity import database_trouble


def apply_migrations(alias: str, say: Callable[[str], object]) -> None:
    """Apply the missing migrations to that database; raise CannotReach."""
    try:
        executor = MigrationExecutor(connections[alias])
        pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if pending:
            say(f"Applying {len(pending)} migration{'s' if len(pending) > 1 else ''}.")
            call_command("migrate", database=alias, interactive=False, verbosity=0)
    except DatabaseError as error:
        raise database_trouble(alias, error) from error
    finally:
        connections.close_all()
