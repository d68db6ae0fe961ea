"""Bury a node only while its locks are free: one function, no table is touched."""
# ruff: noqa: RUF012 - Django reads these as class attributes

from django.db import migrations

from sharding_app.migrations._sql import RunFiles


class Migration(migrations.Migration):
    dependencies = [("sharding", "0002_operations")]

    operations = [RunFiles(("0003_bury",), ("0003_drop",))]
