"""Passivation: which entities of a shard leave memory when there are too many.

    a message for an entity ──touched──> it is in its order; evicted entities are returned
    it has stopped, or moved ──removed──> it has no place any more
    another limit ──resized──> evicted entities are returned

A *plain* strategy replaces by one policy. A *composite* one lets newcomers into a window first. An
entity that falls out of the window enters the main area only if it was used more often recently
than the one that would be evicted for it. So neither a scan nor a burst drives out entities that
are used again and again. The window's size may be found by hill climbing.

Contract: at most `limit` entities have a place, at least one may. An entity that is returned has no
place. Idle time is not looked at here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeGuard, get_args

from sharding_app.protocol.passivation.frequency_sketch import FrequencySketch
from sharding_app.protocol.passivation.hill_climbing import HillClimbing
from sharding_app.protocol.passivation.recency import (
    LeastFrequentlyUsed,
    LeastRecentlyUsed,
    MostRecentlyUsed,
    Order,
    Replacement,
    SegmentedLeastRecentlyUsed,
    Tracked,
)

Policy = Literal["least-recently-used", "most-recently-used", "least-frequently-used"]
POLICIES: tuple[str, ...] = get_args(Policy)


LARGEST_MULTIPLIER = 1e9
DEEPEST = 64


def _need(fits: object, name: str, what: str) -> None:
    if not fits:
        raise ValueError(f"passivation: {name} is to be {what}")


def _need_int(value: object, name: str, least: int, most: float = LARGEST_MULTIPLIER) -> None:
    fits = type(value) is int and least <= value <= most
    _need(fits, name, f"an int from {least} to {most:g}, not {value!r}")


def _need_number(value: object, name: str, most: float) -> None:
    _need(_is_number(value) and 0 < value <= most, name, f"above 0 and at most {most:g}, not {value!r}")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _need_kind(value: object, name: str, kind: type) -> None:
    _need(value is None or isinstance(value, kind), name, f"None or {kind.__name__}(...), not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequencyFilter:
    """The admission filter that compares frequencies."""

    depth: int = 4
    counter_bits: int = 4
    width_multiplier: int = 4
    "Counters per row, for each entity of the limit."
    reset_multiplier: float = 10.0
    "Number of accesses after which all counts are halved, for each entity of the limit."

    def __post_init__(self) -> None:
        _need_int(self.depth, "depth", 1, DEEPEST)
        _need_int(self.counter_bits, "counter_bits", 2, 64)
        _need_int(self.width_multiplier, "width_multiplier", 1)
        _need_number(self.reset_multiplier, "reset_multiplier", LARGEST_MULTIPLIER)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowClimbing:
    """Settings of the search for the window's size."""

    adjust_multiplier: float = 10.0
    "Number of accesses between two steps, for each entity of the limit."
    initial_step: float = 0.0625
    restart_threshold: float = 0.05
    step_decay: float = 0.98

    def __post_init__(self) -> None:
        _need_number(self.adjust_multiplier, "adjust_multiplier", LARGEST_MULTIPLIER)
        _need_number(self.initial_step, "initial_step", 1)
        _need_number(self.restart_threshold, "restart_threshold", LARGEST_MULTIPLIER)
        _need_number(self.step_decay, "step_decay", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionWindow:
    """The area that newcomers enter first."""

    proportion: float = 0.01
    minimum: float = 0.01
    maximum: float = 1.0
    climbing: WindowClimbing | None = None
    "None: its size is fixed."

    def __post_init__(self) -> None:
        sizes = self.minimum, self.proportion, self.maximum
        _need(
            all(map(_is_number, sizes)) and 0 < self.minimum <= self.proportion <= self.maximum <= 1,
            "window", "0 < minimum <= proportion <= maximum <= 1",
        )  # fmt: skip
        _need_kind(self.climbing, "climbing", WindowClimbing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passivation:
    """Settings for the choice of entities to evict when a node has more of them in memory than its
    limit.
    """

    replacement: Policy = "least-recently-used"
    segments: tuple[float, ...] = ()
    "For least-recently-used: the proportions of its levels, the lowest first; empty: no levels."
    dynamic_aging: bool = False
    "For least-frequently-used."
    window: AdmissionWindow | None = None
    filter: FrequencyFilter | None = None

    def __post_init__(self) -> None:
        _need(self.replacement in POLICIES, "replacement", f"one of {', '.join(POLICIES)}")
        segments: object = self.segments
        fits = isinstance(segments, tuple | list) and all(_is_number(each) and each > 0 for each in segments)
        _need(
            fits and sum(self.segments) <= 1 + 1e-9,
            "segments",
            "proportions above 0 that add up to 1 at most",
        )
        _need(
            not self.segments or self.replacement == "least-recently-used",
            "segments",
            "for least-recently-used",
        )
        _need(
            not self.dynamic_aging or self.replacement == "least-frequently-used",
            "dynamic_aging", "for least-frequently-used",
        )  # fmt: skip
        _need_kind(self.window, "window", AdmissionWindow)
        _need_kind(self.filter, "filter", FrequencyFilter)

    def strategy(self, limit: int) -> "Strategy":
        """Make a strategy for a shard with at most `limit` entities in memory."""
        if self.window is None and self.filter is None:
            return _Plain(self._policy(limit), limit)
        return _Composite(self, self._policy, limit)

    def _policy(self, limit: int) -> Replacement:
        if self.replacement == "most-recently-used":
            return MostRecentlyUsed()
        if self.replacement == "least-frequently-used":
            return LeastFrequentlyUsed(aging=self.dynamic_aging)
        if self.segments:
            return SegmentedLeastRecentlyUsed(self.segments, limit)
        return LeastRecentlyUsed()


COMPOSITE = Passivation(
    segments=(0.2, 0.8), window=AdmissionWindow(climbing=WindowClimbing()), filter=FrequencyFilter()
)
NAMED: dict[str, Passivation] = {
    "least-recently-used": Passivation(),
    "segmented-least-recently-used": Passivation(segments=(0.2, 0.8)),
    "most-recently-used": Passivation(replacement="most-recently-used"),
    "least-frequently-used": Passivation(replacement="least-frequently-used"),
    "least-frequently-used-with-aging": replace(
        Passivation(replacement="least-frequently-used"), dynamic_aging=True
    ),
    "composite": COMPOSITE,
}


def passivation(wanted: str | Passivation) -> Passivation:
    """Return the strategy that a setting names, or is."""
    if isinstance(wanted, Passivation):
        return wanted
    try:
        return NAMED[wanted]
    except KeyError:
        raise ValueError(f"no passivation is called {wanted!r}: there are {', '.join(NAMED)}") from None


class Strategy(Protocol):
    """The strategy of one shard."""

    def touched(self, node: Tracked) -> list[Any]:
        """Take in a use of an entity; return the entities evicted for it, mostly none."""

    def removed(self, node: Tracked) -> None:
        """Take in that an entity with a place has left by itself."""

    def resized(self, limit: int) -> list[Any]:
        """Change the limit; return the entities evicted for it."""


_NONE_EVICTED: list[Any] = []


@dataclass(slots=True)
class _Plain:
    policy: Replacement
    limit: int

    def touched(self, node: Tracked) -> list[Any]:
        policy = self.policy
        if node.place is not None:
            policy.renew(node)
            return _NONE_EVICTED
        # Evict first: an entity never goes for its own message.
        evicted = self._evict(self.limit - 1)
        policy.add(node)
        return evicted

    def removed(self, node: Tracked) -> None:
        self.policy.remove(node)

    def resized(self, limit: int) -> list[Any]:
        self.limit = limit
        self.policy.resize(limit)
        return self._evict(limit)

    def _evict(self, limit: int) -> list[Any]:
        evicted = []
        while self.policy.size > limit:
            node = self.policy.victim()
            self.policy.remove(node)
            evicted.append(node)
        return evicted


@dataclass(slots=True)
class _Composite:
    settings: Passivation
    make: Callable[[int], Replacement]
    limit: int
    window: Order = field(default_factory=Order)
    main: Replacement = field(init=False)
    proportion: float = field(init=False, default=0.0)
    sketch: FrequencySketch | None = field(init=False, default=None)
    climber: HillClimbing | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.settings.window is not None:
            self.proportion = self.settings.window.proportion
        self.main = self.make(self.limit - self.window_limit)
        self._measure()

    @property
    def window_limit(self) -> int:
        if self.settings.window is None:
            return 0
        return max(1, int(self.proportion * self.limit + 1e-9))

    def touched(self, node: Tracked) -> list[Any]:
        hit, evicted = node.place is not None, _NONE_EVICTED
        if self.sketch is not None:
            self.sketch.add(node.id)
        if hit:
            (self.window if node.place is self.window else self.main).renew(node)
        elif self.settings.window is None:
            evicted = self._admit(node)
        else:
            self.window.add(node)
            if self.window.size > self.window_limit:
                candidate = self.window.oldest
                self.window.remove(candidate)
                evicted = self._admit(candidate)
        if self.climber is not None:
            change = self.climber.record(hit=hit)
            if change:
                self._shift(self.settings.window or AdmissionWindow(), change)
        return evicted

    def removed(self, node: Tracked) -> None:
        (self.window if node.place is self.window else self.main).remove(node)

    def resized(self, limit: int) -> list[Any]:
        if limit == self.limit:
            return []
        self.limit = limit
        self._measure()
        evicted: list[Any] = []
        while self.window.size > self.window_limit:
            node = self.window.oldest
            self.window.remove(node)
            evicted += self._admit(node)
        self.main.resize(limit - self.window_limit)
        while self.main.size > limit - self.window_limit:
            node = self.main.victim()
            self.main.remove(node)
            evicted.append(node)
        return evicted

    def _admit(self, candidate: Tracked) -> list[Any]:
        """Let an entity into the main area, if need be in the place of one that it outranks."""
        room, sketch = self.limit - self.window_limit, self.sketch
        if self.main.size < room:
            self.main.add(candidate)
            return _NONE_EVICTED
        if not room:
            return [candidate]
        victim = self.main.victim()
        if sketch is not None and sketch.frequency(candidate.id) <= sketch.frequency(victim.id):
            return [candidate]
        self.main.remove(victim)
        self.main.add(candidate)
        return [victim]

    def _shift(self, window: AdmissionWindow, change: float) -> None:
        """Change the window's size: entities without room in one area move to the other."""
        self.proportion = min(window.maximum, max(window.minimum, self.proportion + change))
        self.main.resize(self.limit - self.window_limit)
        while self.main.size > self.limit - self.window_limit:
            node = self.main.victim()
            self.main.remove(node)
            self.window.add(node)
        while self.window.size > self.window_limit:
            node = self.window.oldest
            self.window.remove(node)
            self.main.add(node)

    def _measure(self) -> None:
        """Start the counts again: the old ones were for another limit."""
        if (sketch := self.settings.filter) is not None:
            self.sketch = FrequencySketch(
                sketch.width_multiplier * self.limit, depth=sketch.depth, counter_bits=sketch.counter_bits,
                reset_after=max(1, round(sketch.reset_multiplier * self.limit)),
            )  # fmt: skip
        window = self.settings.window
        if window is not None and (climbing := window.climbing) is not None:
            self.climber = HillClimbing(
                max(1, round(climbing.adjust_multiplier * self.limit)), initial_step=climbing.initial_step,
                restart_threshold=climbing.restart_threshold, step_decay=climbing.step_decay,
            )  # fmt: skip
