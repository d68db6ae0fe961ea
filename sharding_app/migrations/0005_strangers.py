"""Only sessions of roles that may write the cluster's rows count as nodes: functions alone, no table is touched."""
# ruff: noqa: RUF012 - Django reads these as class attributes

from django.db import migrations

from sharding_app.migrations._sql import RunFiles


class Migration(migrations.Migration):
    dependencies = [("sharding", "0004_wire")]

    operations = [RunFiles(("0005_strangers",), ("0005_drop",))]
