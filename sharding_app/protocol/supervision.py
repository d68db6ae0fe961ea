"""Supervision: the fate of an entity whose handler raised, by the type of the exception.

=========  ========================================================================================
restart    the object is dropped and rebuilt before its next command
resume     the object stays; if it had staged events it is rebuilt, for they are not stored
stop       the entity stops; the next message starts it again
escalate   it is rebuilt, and every idle entity of its shard is dropped too: state that they share
           may be broken
=========  ========================================================================================

Without a rule an entity with a journal resumes, since its state is known to equal the stored one;
one in memory restarts. A caller's failing command never makes another caller wait. The back-off,
which grows, is for work that starts itself and would fail in a circle: a timer's command, and a
recovery.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Literal, get_args

from sharding_app.protocol.back_off import doubled
from sharding_app.protocol.call import LONGEST_SECONDS

Directive = Literal["restart", "resume", "stop", "escalate"]
DIRECTIVES: tuple[str, ...] = get_args(Directive)


class Supervision:
    """Rules by exception type: of the exception's class and its bases the nearest one counts."""

    __slots__ = ("backoff_seconds", "default", "forgive_after_seconds", "max_backoff_seconds", "rules")

    def __init__(
        self,
        rules: Mapping[type[Exception], Directive] | None = None,
        *,
        default: Directive | None = None,
        backoff_seconds: float = 0.1,
        max_backoff_seconds: float = 10.0,
        forgive_after_seconds: float = 60.0,
    ) -> None:
        """`default` applies where no rule does; None: by the kind of the entity.

        Of a timer's commands and of recoveries the first failure is tried again at once. Each
        further one without a success in between, and within `forgive_after_seconds` of the last,
        waits twice as long.
        """
        self.rules = dict(rules or {})
        self.default = default
        self.backoff_seconds = backoff_seconds
        self.max_backoff_seconds = max_backoff_seconds
        self.forgive_after_seconds = forgive_after_seconds
        for kind, directive in [*self.rules.items(), ("default", default)]:
            if directive not in DIRECTIVES and not (kind == "default" and directive is None):
                raise ValueError(f"{kind}: {directive!r} is none of {', '.join(DIRECTIVES)}")
        for kind in self.rules:
            given: object = kind
            if not (isinstance(given, type) and issubclass(given, Exception)):
                raise ValueError(f"rules are by exception class, and {given!r} is none")
        for name in ("backoff_seconds", "max_backoff_seconds", "forgive_after_seconds"):
            seconds: object = getattr(self, name)
            if not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_SECONDS:
                raise ValueError(f"{name} must be a number from 0 to {LONGEST_SECONDS:.0f}, not {seconds!r}")
        if backoff_seconds > max_backoff_seconds:
            raise ValueError("backoff_seconds must be from 0 up to max_backoff_seconds")

    def directive(self, error: BaseException, otherwise: Directive = "restart") -> Directive:
        for kind in type(error).__mro__:
            if kind in self.rules:
                return self.rules[kind]
        return self.default or otherwise

    def delay(self, failures: int) -> float:
        """Return how long the n-th failure in a row keeps its entity away."""
        if failures < 2:
            return 0.0
        return doubled(self.backoff_seconds, failures - 2, self.max_backoff_seconds)


MAX_COUNTED = 10_000


class Failures:
    """Counts failures in a row, only of entities that failed recently."""

    __slots__ = ("_counted", "_forgive_after")

    def __init__(self, forgive_after_seconds: float) -> None:
        self._forgive_after = forgive_after_seconds
        self._counted: OrderedDict[str, tuple[int, float]] = OrderedDict()
        "The entity that failed last stands last."

    def count(self, entity: str, now: float) -> int:
        """Count one more failure; return how many there were in a row."""
        before, last = self._counted.pop(entity, (0, now))
        number = 1 if now - last > self._forgive_after else before + 1
        self._counted[entity] = number, now
        oldest = next(iter(self._counted.values()))
        if len(self._counted) > MAX_COUNTED or now - oldest[1] > self._forgive_after:
            self._counted.popitem(last=False)
        return number

    def forgive(self, entity: str) -> None:
        """Forget the failures of an entity that has succeeded."""
        self._counted.pop(entity, None)

    def __len__(self) -> int:
        return len(self._counted)
