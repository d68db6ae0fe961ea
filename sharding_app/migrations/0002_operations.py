"""Where the application wants shards, and what operators ask of nodes: small tables alone, so it takes no long lock."""
# ruff: noqa: RUF012 - Django reads these as class attributes

import django.db.models.deletion
from django.db import migrations, models

from sharding_app.migrations._sql import RunFiles


class Migration(migrations.Migration):
    dependencies = [("sharding", "0001_initial")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[RunFiles(("0002_operations",), ("0002_drop",))],
            state_operations=[
                migrations.AddField(
                    model_name="entitytype",
                    name="locations_change",
                    field=models.BigIntegerField(default=0),
                ),
                migrations.AddField(model_name="node", name="asked", field=models.TextField(null=True)),
                migrations.CreateModel(
                    name="Location",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "type_id",
                                "shard",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("shard", models.IntegerField()),
                        ("node", models.TextField()),
                        ("at", models.DateTimeField()),
                        (
                            "type",
                            models.ForeignKey(
                                db_constraint=False,
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="locations",
                                to="sharding.entitytype",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "sharding_location",
                        "ordering": ("type_id", "shard"),
                        "abstract": False,
                        "default_permissions": ("view",),
                        "required_db_vendor": "postgresql",
                        "base_manager_name": "objects",
                    },
                ),
            ],
        )
    ]
