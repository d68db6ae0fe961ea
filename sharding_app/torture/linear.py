"""A check whether a history is linearizable: the search of Wing and Gong, with Lowe's memory of
tries.

A history is linearizable if every call can be given one moment between its beginning and its end
such that, done one by one in the order of these moments, each gives the value that it gave. The
search takes calls one by one. The next may be any call that began before the first end of those not
yet taken. A pair (calls taken, state) that has failed once fails always, and is remembered. A call
without an end may come at any time after its beginning, or never. A read that may come next and
gives the value that it gave is taken at once, and nothing else is tried in its place: it leaves
each state as it is, so in any order that exists it can be moved to this place. Without that rule
the time grows with the number of sets of reads that overlap.
"""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from sharding_app.torture.digest import EMPTY, after
from sharding_app.torture.history import NEVER, Call

S = TypeVar("S")
Step = Callable[[S], S | None]
"""Returns the state after an operation; None: in that state its answer would have been another
one.
"""

MAX_TRIES = 2_000_000


class Operation(NamedTuple, Generic[S]):
    start: float
    end: float
    step: Step[S]
    name: str = ""
    happened: bool = False
    "It has taken effect, although its end is not known."
    token: str = ""
    "The token that it appends; empty: it reads."
    value: tuple[int, int] | None = None
    "Its answer, if it is known."
    reads: bool = False
    "It leaves every state as it is."


class TooHard(Exception):
    """The search was given up, without a result."""


class Verdict(NamedTuple):
    ok: bool
    order: list[int]
    """Positions of the calls as they were taken: all of them, or the longest beginning that was
    found.
    """
    stuck: list[int]
    "Calls that could have come next, but with other answers."


def linearize(operations: Sequence[Operation[S]], initial: S, max_tries: int = MAX_TRIES) -> Verdict:
    """Search for an order. Operations are given in the order of their beginnings."""
    wanted = sum(1 << number for number, each in enumerate(operations) if each.happened or each.end != NEVER)
    taken, state = 0, initial
    path: list[tuple[int, int, S]] = []
    tried: set[tuple[int, S]] = {(0, initial)}
    best: list[int] = []
    stuck: list[int] = []
    choices = [iter(_choices(operations, 0, initial))]
    tries = 0
    while taken & wanted != wanted:
        for number in choices[-1]:
            tries += 1
            if tries > max_tries:
                raise TooHard(f"{len(operations)} operations: given up after {tries} tries")
            reached = operations[number].step(state)
            now = taken | 1 << number
            if reached is None or (now, reached) in tried:
                continue
            tried.add((now, reached))
            path.append((number, taken, state))
            taken, state = now, reached
            choices.append(iter(_choices(operations, taken, state)))
            break
        else:
            if len(path) >= len(best):
                best = [number for number, _, _ in path]
                stuck = _next(operations, taken)
            if not path:
                return Verdict(False, best, stuck)
            choices.pop()
            _, taken, state = path.pop()
    return Verdict(True, [number for number, _, _ in path], [])


def _choices(operations: Sequence[Operation[S]], taken: int, state: S) -> list[int]:
    """Return the calls that have to be tried next: one, if it is a read that fits."""
    found = _next(operations, taken)
    for number in found:
        if operations[number].reads and operations[number].step(state) is not None:
            return [number]
    return found


def _next(operations: Sequence[Operation[S]], taken: int) -> list[int]:
    """Return the calls that may come next: those that began before the first end of all not taken.

    Calls with a known end come first.
    """
    first_end = NEVER
    found = []
    for number in range((~taken & (taken + 1)).bit_length() - 1, len(operations)):
        operation = operations[number]
        if operation.start > first_end:
            break
        if not taken >> number & 1:
            found.append(number)
            first_end = min(first_end, operation.end)
    open_ended = [number for number in found if operations[number].end == NEVER]
    return [
        number
        for number in found
        if operations[number].end != NEVER and operations[number].start <= first_end
    ] + [number for number in open_ended if operations[number].start <= first_end]


# -- The register of the fault tests ---------------------------------------------------------------

State = tuple[int, int]


def _append(token: str, value: State | None) -> Step[State]:
    def step(state: State) -> State | None:
        reached = after(state, token)
        return reached if value is None or reached == value else None

    return step


def _read(value: State) -> Step[State]:
    return lambda state: state if state == value else None


def operations_of(calls: Sequence[Call]) -> list[Operation[State]]:
    """Return one entity's calls as operations, without those that show nothing.

    These changed nothing, or are reads without an answer.
    """
    found = []
    for call in sorted(calls, key=lambda each: each.start):
        name = f"{call.op} {call.token} -> {call.value or call.outcome}"
        if call.appends and call.outcome in ("ok", "unknown", "told", "failed"):
            end = call.until if call.outcome == "ok" else NEVER
            found.append(
                Operation(
                    call.start,
                    end,
                    _append(call.token, call.value),
                    name,
                    call.value is not None,
                    call.token,
                    call.value,
                )
            )
        elif not call.appends and call.outcome == "ok" and call.value is not None:
            found.append(
                Operation(call.start, call.until, _read(call.value), name, value=call.value, reads=True)
            )
    return found


def check_register(calls: Sequence[Call], journal: Sequence[str] | None = None) -> str:
    """Judge one entity's history. Return the mistake, or nothing.

    With the entity's journal, unknown outcomes become known: an append has its place there, or
    never was.
    """
    operations = operations_of(calls if journal is None else _learnt(calls, journal))
    try:
        verdict = linearize(operations, EMPTY)
    except TooHard as error:
        return str(error)
    if verdict.ok:
        return ""
    stuck = "; ".join(operations[number].name for number in verdict.stuck[:4])
    return f"not linearizable: after {len(verdict.order)} of {len(operations)} calls none can be next of: {stuck}"


def _learnt(calls: Sequence[Call], journal: Sequence[str]) -> list[Call]:
    values: dict[str, State] = {}
    state = EMPTY
    for token in journal:
        values[token] = state = after(state, token)
    known = []
    for call in calls:
        if call.appends and call.outcome != "ok":
            if call.token not in values:
                continue
            learnt = Call(
                process=call.process, number=call.number, entity=call.entity, op=call.op, token=call.token,
                start=call.start, outcome="unknown", value=values[call.token],
            )  # fmt: skip
            known.append(learnt)
        else:
            known.append(call)
    return known
