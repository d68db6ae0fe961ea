"""An operation that runs files of `sql/` on the cluster's PostgreSQL alias, and does nothing elsewhere.

In the files, @schema@ stands for the schema that the tables are made in: functions and triggers name it, so that no
search path and no temporary table can lead a write around the fence.
"""

from importlib import resources
from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation

from sharding_app.db import holds_our_tables


def load(name: str, schema: str = "public") -> str:
    """Return the text of one file, for tables in this schema (already quoted where it must be)."""
    text = resources.files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    return text.replace("@schema@", schema)


class RunFiles(Operation):
    """Run the files named first, and the others when the migration is taken back."""

    def __init__(self, forwards: tuple[str, ...], backwards: tuple[str, ...]) -> None:
        self.forwards = forwards
        self.backwards = backwards

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The state is told by the models' own operations."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        _run(self.forwards, schema_editor)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        _run(self.backwards, schema_editor)

    def describe(self) -> str:
        return f"Run {', '.join(self.forwards)} (SQL) on the cluster's database"


def _run(names: tuple[str, ...], schema_editor: BaseDatabaseSchemaEditor) -> None:
    connection = schema_editor.connection
    if not holds_our_tables(connection):
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        row = cursor.fetchone()
    if row is None or row[0] is None:
        raise RuntimeError("The cluster's tables need a schema: the database's search_path names none.")
    for name in names:
        schema_editor.execute(load(name, connection.ops.quote_name(row[0])), params=None)
