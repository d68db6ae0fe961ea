"""Read-only models: the cluster writes its tables itself, fenced, outside the ORM."""

from typing import Any, NoReturn, TypeVar

from django.db import models

from sharding_app.adapters.django.database import journal_alias

M = TypeVar("M", bound=models.Model)

_REASON = (
    "{0} is read-only: the cluster writes its tables itself. Change entities by commands. `sharding_remove_data` and "
    "`sharding_erase` remove data."
)


class ReadOnlyError(TypeError):
    """An attempt to change one of the cluster's tables through the ORM."""


def _refuse(model: type[models.Model]) -> NoReturn:
    raise ReadOnlyError(_REASON.format(model.__name__))


class ReadOnlyQuerySet(models.QuerySet[M]):
    """Reads; everything that writes raises ReadOnlyError."""

    def create(self, **kwargs: Any) -> NoReturn:
        _refuse(self.model)

    async def acreate(self, **kwargs: Any) -> NoReturn:
        _refuse(self.model)

    def bulk_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model)

    async def abulk_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model)

    def bulk_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model)

    async def abulk_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model)

    def get_or_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model)

    async def aget_or_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model)

    def update_or_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model)

    async def aupdate_or_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model)

    def update(self, **kwargs: Any) -> NoReturn:
        _refuse(self.model)

    async def aupdate(self, **kwargs: Any) -> NoReturn:
        _refuse(self.model)

    def delete(self) -> NoReturn:
        _refuse(self.model)

    async def adelete(self) -> NoReturn:
        _refuse(self.model)

    def _raw_delete(self, using: str | None) -> NoReturn:
        _refuse(self.model)

    def _update(self, values: Any) -> NoReturn:
        _refuse(self.model)

    def select_for_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        """A row lock of ours would make the cluster wait for a web request."""
        _refuse(self.model)


class ReadOnlyManager(models.Manager.from_queryset(ReadOnlyQuerySet)):  # type: ignore[misc] # made by Django
    """Reads from the cluster's database, whatever the routers say about others; what belongs to a
    row, from the journal in which that one was found.
    """

    def get_queryset(self) -> Any:
        queryset = super().get_queryset()
        if self._db:
            return queryset
        of_row = self._hints.get("instance")
        return queryset.using((of_row is not None and of_row._state.db) or journal_alias())


class ReadOnlyModel(models.Model):
    """A row of a table that the cluster writes."""

    objects = ReadOnlyManager()

    class Meta:
        abstract = True
        base_manager_name = "objects"
        default_permissions = ("view",)
        required_db_vendor = "postgresql"

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(type(self))

    async def asave(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(type(self))

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(type(self))

    async def adelete(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(type(self))


class StoredJSON(models.TextField):  # type: ignore[type-arg] # generic for the type checker alone
    """A `json` column as the text that was stored: huge integers and floats stay as they are."""

    def db_type(self, connection: Any) -> str:
        return "json" if connection.vendor == "postgresql" else str(super().db_type(connection))

    def select_format(self, compiler: Any, sql: str, params: Any) -> Any:
        if compiler.connection.vendor == "postgresql":
            return f"{sql}::text", params
        return super().select_format(compiler, sql, params)


class Numbers(models.Field):  # type: ignore[type-arg] # as above
    """An `integer[]` column, as a list."""

    def db_type(self, connection: Any) -> str:
        return "integer[]"
