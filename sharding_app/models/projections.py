"""How far projections have come, and what waits in them.

`sharding_change` and `sharding_filled` have no model: their rows have no key, and no append pays
for one."""

from django.db import models

from sharding_app.models.cluster import EntityType
from sharding_app.models.readonly import Numbers, ReadOnlyModel


class ProjectionVersion(ReadOnlyModel):
    """A version of a projection."""

    id = models.IntegerField(primary_key=True)
    name = models.TextField()
    version = models.IntegerField()
    type_ids = Numbers("types")
    live = models.BooleanField()
    paused = models.BooleanField()
    server = models.TextField()
    created_at = models.DateTimeField()
    live_at = models.DateTimeField(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_projection"
        ordering = ("name", "version")

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class ProjectionPosition(ReadOnlyModel):
    """How far a version of a projection has come with the entities of some slices."""

    pk = models.CompositePrimaryKey("projection_id", "journal", "first_slice")
    projection = models.ForeignKey(
        ProjectionVersion, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="positions"
    )
    journal = models.TextField(default="")
    first_slice = models.SmallIntegerField()
    last_slice = models.SmallIntegerField()
    position = models.TextField()
    turn = models.BigIntegerField()
    events = models.BigIntegerField()
    at = models.DateTimeField()
    fill_type = models.IntegerField(null=True)
    fill_after = models.TextField()
    fill_until = models.TextField(null=True)  # noqa: DJ001 - no fill was under way
    secured = models.TextField(null=True)  # noqa: DJ001 - in the cluster's own journal

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_position"

    def __str__(self) -> str:
        return f"slices {self.first_slice} to {self.last_slice}"


class HeldEntity(ReadOnlyModel):
    """An entity whose later events wait in a projection, since one has failed."""

    pk = models.CompositePrimaryKey("projection_id", "type_id", "entity")
    projection = models.ForeignKey(
        ProjectionVersion, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="held"
    )
    type = models.ForeignKey(
        EntityType, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="held"
    )
    entity = models.TextField()
    journal = models.TextField(default="")
    slice = models.SmallIntegerField()
    next = models.BigIntegerField("failed event")
    until = models.TextField(null=True)  # noqa: DJ001 - it waits
    failures = models.IntegerField()
    retry_at = models.DateTimeField()
    parked = models.BooleanField()
    error = models.TextField()
    at = models.DateTimeField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_held"
        verbose_name_plural = "held entities"

    def __str__(self) -> str:
        return f"{self.entity} #{self.next}"


class ProjectionJournal(ReadOnlyModel):
    """What both databases have noted when the positions of a projection in a journal began."""

    pk = models.CompositePrimaryKey("projection_id", "journal")
    projection = models.ForeignKey(
        ProjectionVersion, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="journals"
    )
    journal = models.TextField(default="")
    server = models.TextField()
    began = models.TextField()
    passed = models.TextField(null=True)  # noqa: DJ001 - noted in the journal's database alone
    lost = models.BooleanField(default=False)

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_following"

    def __str__(self) -> str:
        return self.journal


class SecuredPosition(ReadOnlyModel):
    """In a further journal: the last transaction that a turn has committed there."""

    pk = models.CompositePrimaryKey("projection_id", "first_slice")
    projection = models.ForeignKey(
        ProjectionVersion, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="secured"
    )
    first_slice = models.SmallIntegerField()
    xid = models.TextField()

    class Meta(ReadOnlyModel.Meta):
        db_table = "sharding_secured"

    def __str__(self) -> str:
        return f"slices from {self.first_slice}: {self.xid}"
