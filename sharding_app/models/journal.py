"""What entities leave behind: events, snapshots, and which of them shall run without being
asked.
"""

from django.db import models

from sharding_app.models.cluster import EntityType
from sharding_app.models.readonly import ReadOnlyModel, StoredJSON


class Event(ReadOnlyModel):
    """One event of one entity."""

    pk = models.CompositePrimaryKey("type_id", "entity", "seq")
    type = models.ForeignKey(
        EntityType, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="events"
    )
    entity = models.TextField()
    seq = models.BigIntegerField()
    shard = models.IntegerField()
    epoch = models.BigIntegerField()
    name = models.TextField()
    version = models.IntegerField()
    payload = StoredJSON()
    command_id = models.TextField(null=True)  # noqa: DJ001 - not the last event of a command
    command = models.TextField(null=True)  # noqa: DJ001
    reply = models.BinaryField(null=True)
    partial = models.BooleanField()
    at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_event"

    def __str__(self) -> str:
        return f"{self.entity} #{self.seq} {self.name}"


class Snapshot(ReadOnlyModel):
    """An entity's state after one of its events."""

    pk = models.CompositePrimaryKey("type_id", "entity", "seq")
    type = models.ForeignKey(
        EntityType, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="snapshots"
    )
    entity = models.TextField()
    seq = models.BigIntegerField()
    shard = models.IntegerField()
    epoch = models.BigIntegerField()
    state = StoredJSON()
    at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_snapshot"

    def __str__(self) -> str:
        return f"{self.entity} #{self.seq}"


class RememberedEntity(ReadOnlyModel):
    """An entity that runs again after a restart without being asked."""

    pk = models.CompositePrimaryKey("type_id", "shard", "entity")
    type = models.ForeignKey(
        EntityType, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="remembered"
    )
    shard = models.IntegerField()
    entity = models.TextField()
    epoch = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_remembered"
        verbose_name_plural = "remembered entities"

    def __str__(self) -> str:
        return self.entity


class Subject(ReadOnlyModel):
    """The key of a person's data, or the mark of a person who was erased."""

    id = models.BinaryField(primary_key=True)
    mark = models.BinaryField()
    wrapped = models.BinaryField(null=True)
    at = models.DateTimeField()
    erased_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_subject"

    def __str__(self) -> str:
        return "erased" if self.erased_at else "personal data"


class Message(ReadOnlyModel):
    """A message or a timer on its way."""

    id = models.TextField(primary_key=True)
    type = models.ForeignKey(
        EntityType, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="messages"
    )
    shard = models.IntegerField()
    entity = models.TextField()
    epoch = models.BigIntegerField(null=True)
    seq = models.BigIntegerField()
    position = models.IntegerField()
    target_type = models.TextField()
    target = models.TextField()
    command = models.TextField()
    args = models.BinaryField()
    due = models.DateTimeField()
    key = models.TextField(null=True)  # noqa: DJ001 - a message
    every = models.TextField(null=True)  # noqa: DJ001 - it does not repeat
    reply_to = models.TextField(null=True)  # noqa: DJ001 - no reply is wanted
    on_failure = models.TextField(null=True)  # noqa: DJ001 - it is parked
    failures = models.IntegerField()
    parked = models.BooleanField()
    error = models.TextField()
    at = models.DateTimeField()
    occasion = models.DateTimeField(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_message"

    def __str__(self) -> str:
        return f"{self.command} of {self.target}"


class TakenMessage(ReadOnlyModel):
    """A message that has taken effect here, and whose row lies in another journal."""

    id = models.TextField(primary_key=True)
    type = models.ForeignKey(
        EntityType, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="taken"
    )
    shard = models.IntegerField()
    entity = models.TextField()
    epoch = models.BigIntegerField()
    journal = models.TextField()
    partial = models.BooleanField()
    at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_taken"

    def __str__(self) -> str:
        return f"{self.id} by {self.entity}"
