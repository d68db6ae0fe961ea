"""Find a caller's command id without reading its entity's events: an index that is built while nodes go on."""
# ruff: noqa: RUF012 - Django reads these as class attributes

from django.db import migrations

from sharding_app.migrations._sql import RunFiles


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("sharding", "0007_histories")]

    operations = [RunFiles(("0008_command_ids",), ("0008_drop",))]
