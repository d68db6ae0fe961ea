"""All tables, the fence and the coordinator's functions.

The models below are state only: the SQL makes the tables.
"""
# ruff: noqa: RUF012 - Django reads these as class attributes

import django.db.models.deletion
from django.db import migrations, models

import sharding_app.models.readonly
from sharding_app.migrations._sql import RunFiles


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                RunFiles(
                    (
                        "0001_tables",
                        "0001_fence",
                        "0001_messages",
                        "0001_sessions",
                        "0001_coordinator",
                        "0001_locations",
                        "0001_projections",
                    ),
                    ("0001_drop",),
                ),
            ],
            state_operations=[
                migrations.CreateModel(
                    name="Cluster",
                    fields=[
                        ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                        ("cluster_id", models.TextField()),
                        ("origin", models.TextField()),
                        ("last_age", models.BigIntegerField()),
                        ("created_at", models.DateTimeField()),
                    ],
                    options={
                        "db_table": "sharding_cluster",
                        "verbose_name": "cluster",
                        "verbose_name_plural": "dashboard",
                        "permissions": (
                            ("view_payload", "Can see the content of events and states"),
                            ("rebalance_shards", "Can rebalance, and pause rebalancing"),
                            ("move_shard", "Can move a shard"),
                            ("drain_node", "Can drain a node"),
                            ("shut_down_node", "Can shut a node down"),
                            ("stop_entity", "Can passivate and restart entities"),
                            ("retry_message", "Can run and retry messages and timers"),
                            ("discard_message", "Can discard messages and timers"),
                            (
                                "steer_projection",
                                "Can pause, resume and reset projections, retry and skip their events",
                            ),
                        ),
                        "abstract": False,
                        "required_db_vendor": "postgresql",
                        "base_manager_name": "objects",
                        "default_permissions": ("view",),
                    },
                ),
                migrations.CreateModel(
                    name="Coordinator",
                    fields=[
                        ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                        ("term", models.BigIntegerField()),
                        ("incarnation", models.TextField(null=True)),
                        ("elected_at", models.DateTimeField(null=True)),
                        ("lineage", models.TextField(null=True)),
                    ],
                    options={
                        "db_table": "sharding_coordinator",
                        "abstract": False,
                        "required_db_vendor": "postgresql",
                        "base_manager_name": "objects",
                        "default_permissions": ("view",),
                    },
                ),
                migrations.CreateModel(
                    name="Decision",
                    fields=[
                        ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                        ("at", models.DateTimeField()),
                        ("term", models.BigIntegerField(null=True)),
                        ("action", models.TextField()),
                        ("subject", models.TextField()),
                        ("detail", models.TextField()),
                    ],
                    options={
                        "db_table": "sharding_decision",
                        "ordering": ("-id",),
                        "abstract": False,
                        "required_db_vendor": "postgresql",
                        "base_manager_name": "objects",
                        "default_permissions": ("view",),
                    },
                ),
                migrations.CreateModel(
                    name="EntityType",
                    fields=[
                        ("id", models.IntegerField(primary_key=True, serialize=False)),
                        ("name", models.TextField(unique=True)),
                        ("kind", models.TextField()),
                        ("number_of_shards", models.IntegerField()),
                        ("extractor", models.TextField()),
                        ("hash_version", models.TextField()),
                        ("role", models.TextField()),
                        ("store_mode", models.TextField()),
                        ("changeable", models.BooleanField()),
                        ("locations_change", models.BigIntegerField(default=0)),
                        ("workers", models.IntegerField(default=0)),
                        ("workers_wanted", models.IntegerField(default=0)),
                        ("workers_revision", models.BigIntegerField(default=0)),
                        ("uses_messages", models.BooleanField(default=False)),
                        ("followed", models.BooleanField(default=False)),
                        ("registered_at", models.DateTimeField()),
                    ],
                    options={
                        "db_table": "sharding_type",
                        "ordering": ("name",),
                        "abstract": False,
                        "required_db_vendor": "postgresql",
                        "base_manager_name": "objects",
                        "default_permissions": ("view",),
                    },
                ),
                migrations.CreateModel(
                    name="Lease",
                    fields=[
                        ("name", models.TextField(primary_key=True, serialize=False)),
                        ("owner", models.TextField(null=True)),
                        ("token", models.BigIntegerField()),
                        ("acquired_at", models.DateTimeField(null=True)),
                        ("expires_at", models.DateTimeField(null=True)),
                    ],
                    options={
                        "db_table": "sharding_lease",
                        "ordering": ("name",),
                        "abstract": False,
                        "required_db_vendor": "postgresql",
                        "base_manager_name": "objects",
                        "default_permissions": ("view",),
                    },
                ),
                migrations.CreateModel(
                    name="Node",
                    fields=[
                        ("incarnation", models.TextField(primary_key=True, serialize=False)),
                        ("name", models.TextField()),
                        ("host", models.TextField()),
                        ("pid", models.IntegerField(verbose_name="process id")),
                        ("age", models.BigIntegerField(unique=True)),
                        (
                            "state",
                            models.TextField(
                                choices=[("joining", "joining"), ("up", "up"), ("leaving", "leaving")]
                            ),
                        ),
                        ("roles", models.JSONField()),
                        ("app_version", models.TextField()),
                        ("asked", models.TextField(null=True)),
                        ("candidate", models.BooleanField()),
                        ("types", models.JSONField()),
                        ("deaf", models.BooleanField()),
                        ("wire", models.JSONField(default=list)),
                        ("addresses", models.JSONField(default=list)),
                        ("server_started", models.TextField(null=True)),
                        ("server_timeline", models.BigIntegerField(null=True)),
                        ("server_system", models.TextField(null=True)),
                        ("backends", models.JSONField()),
                        ("lock_key_1", models.BigIntegerField()),
                        ("lock_key_2", models.BigIntegerField()),
                        ("joined_at", models.DateTimeField()),
                        ("updated_at", models.DateTimeField()),
                    ],
                    options={
                        "db_table": "sharding_node",
                        "ordering": ("age",),
                        "abstract": False,
                        "required_db_vendor": "postgresql",
                        "base_manager_name": "objects",
                        "default_permissions": ("view",),
                    },
                ),
                migrations.CreateModel(
                    name="Event",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "type_id",
                                "entity",
                                "seq",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("entity", models.TextField()),
                        ("seq", models.BigIntegerField()),
                        ("shard", models.IntegerField()),
                        ("epoch", models.BigIntegerField()),
                        ("name", models.TextField()),
                        ("version", models.IntegerField()),
                        ("payload", sharding_app.models.readonly.StoredJSON()),
                        ("command_id", models.TextField(null=True)),
                        ("command", models.TextField(null=True)),
                        ("reply", models.BinaryField(null=True)),
                        ("partial", models.BooleanField()),
                        ("at", models.DateTimeField()),
                        (
                            "type",
                            models.ForeignKey(
                                db_constraint=False,
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="events",
                                to="sharding.entitytype",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "sharding_event",
                        "abstract": False,
                        "required_db_vendor": "postgresql",
                        "base_manager_name": "objects",
                        "default_permissions": ("view",),
                    },
                ),
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
                migrations.CreateModel(
                    name="RememberedEntity",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "type_id",
                                "shard",
                                "entity",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("shard", models.IntegerField()),
                        ("entity", models.TextField()),
                        ("epoch", models.BigIntegerField()),
                        ("at", models.DateTimeField()),
                        (
                            "type",
                            models.ForeignKey(
                                db_constraint=False,
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="remembered",
                                to="sharding.entitytype",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "sharding_remembered",
                        "verbose_name_plural": "remembered entities",
                        "abstract": False,
                        "required_db_vendor": "postgresql",
                        "base_manager_name": "objects",
                        "default_permissions": ("view",),
                    },
                ),
                migrations.CreateModel(
                    name="Shard",
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
                        ("epoch", models.BigIntegerField()),
                        ("home", models.TextField(null=True)),
                        (
                            "step",
                            models.TextField(
                                choices=[
                                    ("home", "at home"),
                                    ("handoff", "handing off"),
                                    ("stopped", "stopped"),
                                ]
                            ),
                        ),
                        ("updated_at", models.DateTimeField()),
                        (
                            "type",
                            models.ForeignKey(
                                db_constraint=False,
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="shards",
                                to="sharding.entitytype",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "sharding_shard",
                        "ordering": ("type_id", "shard"),
                        "abstract": False,
                        "required_db_vendor": "postgresql",
                        "base_manager_name": "objects",
                        "default_permissions": ("view",),
                    },
                ),
                migrations.CreateModel(
                    name="Snapshot",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "type_id",
                                "entity",
                                "seq",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("entity", models.TextField()),
                        ("seq", models.BigIntegerField()),
                        ("shard", models.IntegerField()),
                        ("epoch", models.BigIntegerField()),
                        ("state", sharding_app.models.readonly.StoredJSON()),
                        ("at", models.DateTimeField()),
                        (
                            "type",
                            models.ForeignKey(
                                db_constraint=False,
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="snapshots",
                                to="sharding.entitytype",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "sharding_snapshot",
                        "abstract": False,
                        "required_db_vendor": "postgresql",
                        "base_manager_name": "objects",
                        "default_permissions": ("view",),
                    },
                ),
                migrations.CreateModel(
                    name="Message",
                    fields=[
                        ("id", models.TextField(primary_key=True, serialize=False)),
                        ("shard", models.IntegerField()),
                        ("entity", models.TextField()),
                        ("epoch", models.BigIntegerField(null=True)),
                        ("seq", models.BigIntegerField()),
                        ("position", models.IntegerField()),
                        ("target_type", models.TextField()),
                        ("target", models.TextField()),
                        ("command", models.TextField()),
                        ("args", models.BinaryField()),
                        ("due", models.DateTimeField()),
                        ("key", models.TextField(null=True)),
                        ("every", models.TextField(null=True)),
                        ("reply_to", models.TextField(null=True)),
                        ("on_failure", models.TextField(null=True)),
                        ("failures", models.IntegerField()),
                        ("parked", models.BooleanField()),
                        ("error", models.TextField()),
                        ("at", models.DateTimeField()),
                        (
                            "type",
                            models.ForeignKey(
                                db_constraint=False,
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="messages",
                                to="sharding.entitytype",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "sharding_message",
                        "abstract": False,
                        "required_db_vendor": "postgresql",
                        "base_manager_name": "objects",
                        "default_permissions": ("view",),
                    },
                ),
            ],
        ),
    ]
