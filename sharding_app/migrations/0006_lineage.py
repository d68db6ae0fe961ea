"""Rows say in which lineage of the server they were written: a server that went back in time is noticed."""
# ruff: noqa: RUF012 - Django reads these as class attributes

from django.db import migrations, models

from sharding_app.migrations._sql import RunFiles


class Migration(migrations.Migration):
    dependencies = [("sharding", "0005_strangers")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[RunFiles(("0006_lineage",), ("0006_drop",))],
            state_operations=[
                migrations.AddField(
                    model_name="node", name="server_system", field=models.TextField(null=True)
                ),
                migrations.AddField(
                    model_name="coordinator", name="lineage", field=models.TextField(null=True)
                ),
            ],
        )
    ]
