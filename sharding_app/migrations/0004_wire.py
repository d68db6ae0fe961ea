"""Nodes say which wire versions they speak; a table that was never used goes. No loaded table is touched."""
# ruff: noqa: RUF012 - Django reads these as class attributes

from django.db import migrations, models

from sharding_app.migrations._sql import RunFiles


class Migration(migrations.Migration):
    dependencies = [("sharding", "0003_bury")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[RunFiles(("0004_wire",), ("0004_drop",))],
            state_operations=[
                migrations.AddField(model_name="node", name="wire", field=models.JSONField(default=list)),
                migrations.DeleteModel(name="DurableState"),
            ],
        )
    ]
