"""Who is in the cluster and what lives where. The SQL of these tables stands in
`migrations/sql`.
"""

from django.db import models

from sharding_app.models.readonly import Numbers, ReadOnlyModel


class Cluster(ReadOnlyModel):
    """The cluster itself: one row."""

    id = models.SmallIntegerField(primary_key=True)
    cluster_id = models.TextField()
    origin = models.TextField()
    last_age = models.BigIntegerField()
    created_at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_cluster"
        verbose_name = "cluster"
        verbose_name_plural = "dashboard"
        # `view_cluster` is the dashboard's; the others are what an operator may do there.
        permissions = (
            ("view_payload", "Can see the content of events and states"),
            ("rebalance_shards", "Can rebalance, and pause rebalancing"),
            ("move_shard", "Can move a shard"),
            ("drain_node", "Can drain a node"),
            ("shut_down_node", "Can shut a node down"),
            ("stop_entity", "Can passivate and restart entities"),
            ("retry_message", "Can run and retry messages and timers"),
            ("discard_message", "Can discard messages and timers"),
            ("steer_projection", "Can pause, resume and reset projections, retry and skip their events"),
            ("erase_subject", "Can erase persons"),
        )

    def __str__(self) -> str:
        return self.cluster_id


class Coordinator(ReadOnlyModel):
    """The coordinator's fencing number and who raised it last: one row."""

    id = models.SmallIntegerField(primary_key=True)
    term = models.BigIntegerField()
    incarnation = models.TextField(null=True)  # noqa: DJ001 - none was elected yet
    elected_at = models.DateTimeField(null=True)
    lineage = models.TextField(null=True)  # noqa: DJ001 - none was elected yet
    journals_read = models.BigIntegerField(default=0)

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_coordinator"

    def __str__(self) -> str:
        return f"term {self.term}"


class Node(ReadOnlyModel):
    """One process that joined the cluster."""

    incarnation = models.TextField(primary_key=True)
    name = models.TextField()
    host = models.TextField()
    pid = models.IntegerField("process id")
    age = models.BigIntegerField(unique=True)
    state = models.TextField(choices=[("joining", "joining"), ("up", "up"), ("leaving", "leaving")])
    roles = models.JSONField()
    app_version = models.TextField()
    asked = models.TextField(null=True)  # noqa: DJ001 - nothing is asked of it
    candidate = models.BooleanField()
    types = models.JSONField()
    deaf = models.BooleanField()
    wire = models.JSONField(default=list)
    addresses = models.JSONField(default=list)
    server_started = models.TextField(null=True)  # noqa: DJ001 - its lifeline is not established yet
    server_timeline = models.BigIntegerField(null=True)
    server_system = models.TextField(null=True)  # noqa: DJ001 - its lifeline is not established yet
    backends = models.JSONField()
    lock_key_1 = models.BigIntegerField()
    lock_key_2 = models.BigIntegerField()
    leases_until = models.DateTimeField(null=True)
    journals = models.JSONField(default=list)
    joined_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_node"
        ordering = ("age",)

    def __str__(self) -> str:
        return self.name


class EntityType(ReadOnlyModel):
    """One entity type, and what must be equal on every node that hosts it."""

    id = models.IntegerField(primary_key=True)
    name = models.TextField(unique=True)
    kind = models.TextField()
    number_of_shards = models.IntegerField()
    extractor = models.TextField()
    hash_version = models.TextField()
    role = models.TextField()
    store_mode = models.TextField()
    changeable = models.BooleanField()
    locations_change = models.BigIntegerField(default=0)
    workers = models.IntegerField(default=0)
    workers_wanted = models.IntegerField(default=0)
    workers_revision = models.BigIntegerField(default=0)
    uses_messages = models.BooleanField(default=False)
    followed = models.BooleanField(default=False)
    shards_wanted = models.IntegerField(default=0)
    groups_resized = models.IntegerField(default=0)
    shards_revision = models.BigIntegerField(default=0)
    closings = models.BigIntegerField(default=0)
    declared_shards = Numbers(default=list)
    registered_at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_type"
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Shard(ReadOnlyModel):
    """Where one shard of one type lives, and its fencing number."""

    pk = models.CompositePrimaryKey("type_id", "shard")
    type = models.ForeignKey(
        EntityType, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="shards"
    )
    shard = models.IntegerField()
    epoch = models.BigIntegerField()
    home = models.TextField(null=True)  # noqa: DJ001 - it is stopped
    step = models.TextField(
        choices=[
            ("home", "at home"),
            ("handoff", "handing off"),
            ("stopped", "stopped"),
            ("copied", "a copy that a move makes"),
        ]
    )
    followed = models.BooleanField(default=False)
    journal = models.TextField(default="")
    updated_at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_shard"
        ordering = ("type_id", "shard")

    def __str__(self) -> str:
        return f"{self.type_id}/{self.shard}"


class ShardMove(ReadOnlyModel):
    """A shard that moves to another journal, or has left a copy in its former one."""

    pk = models.CompositePrimaryKey("type_id", "shard")
    type = models.ForeignKey(
        EntityType, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="moves"
    )
    shard = models.IntegerField()
    source = models.TextField()
    target = models.TextField()
    step = models.TextField(
        choices=[
            ("copying", "being copied"),
            ("closed", "closed"),
            ("moved", "moved, with a copy left behind"),
        ]
    )
    closed_until = models.DateTimeField(null=True)
    at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_move"
        ordering = ("type_id", "shard")

    def __str__(self) -> str:
        return f"{self.type_id}/{self.shard}"


class Lease(ReadOnlyModel):
    """A lease that a shard or a singleton needs to run."""

    name = models.TextField(primary_key=True)
    owner = models.TextField(null=True)  # noqa: DJ001 - free
    token = models.BigIntegerField()
    acquired_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_lease"
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class JournalDatabase(ReadOnlyModel):
    """A further database that has a part of the journal, and where it lies."""

    name = models.TextField(primary_key=True)
    place = models.TextField(unique=True)
    at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_journal"
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Location(ReadOnlyModel):
    """Where the application wants a shard (`ExternalAllocation`)."""

    pk = models.CompositePrimaryKey("type_id", "shard")
    type = models.ForeignKey(
        EntityType, models.DO_NOTHING, related_name="locations", db_constraint=False, db_index=False
    )
    shard = models.IntegerField()
    node = models.TextField()
    at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_location"
        ordering = ("type_id", "shard")

    def __str__(self) -> str:
        return f"{self.type_id}/{self.shard} on {self.node}"


class Decision(ReadOnlyModel):
    """A line of the timeline: what the coordinator decided, about whom."""

    id = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    term = models.BigIntegerField(null=True)
    action = models.TextField()
    subject = models.TextField()
    detail = models.TextField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_decision"
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.action} {self.subject}"
