"""Vacuum the events after deletions in time: one setting of the table, which takes no long lock."""
# ruff: noqa: RUF012 - Django reads these as class attributes

from django.db import migrations

from sharding_app.migrations._sql import RunFiles


class Migration(migrations.Migration):
    dependencies = [("sharding", "0006_lineage")]

    operations = [RunFiles(("0007_histories",), ("0007_drop",))]
