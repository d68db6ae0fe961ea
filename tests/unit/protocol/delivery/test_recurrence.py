"""Repeating timers: when the next one is due, over changes of clocks and after an absence."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sharding_app.protocol.delivery.recurrence import (
    LATE_SECONDS,
    Firing,
    Recurrence,
    after,
    decode,
    fire,
    first,
)

HOURLY = Recurrence(seconds=3600)
MORNING = Recurrence(day_at="07:00", tz="Europe/Berlin")
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu")

moments = st.integers(950_000_000, 2_050_000_000).map(lambda each: datetime.fromtimestamp(each, UTC))
intervals = st.builds(Recurrence, seconds=st.floats(1.0, 1e7))
days = st.builds(Recurrence, day_at=st.times().map(time.isoformat), tz=st.sampled_from(ZONES))
specs = st.one_of(intervals, days)
absences = st.timedeltas(timedelta(0), timedelta(days=400))


def with_missed(spec: Recurrence, missed: str) -> Recurrence:
    return decode(spec.encode().replace("}", f',"missed":"{missed}"}}')) if missed != "once" else spec


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@given(specs, moments)
def test_the_next_time_is_later_and_the_same_in_every_zone(spec: Recurrence, now: datetime) -> None:
    found = first(spec, now)
    assert found > now
    assert found.tzinfo is UTC
    assert first(spec, now.astimezone(ZoneInfo("Asia/Tokyo"))) == found
    assert decode(spec.encode()) == spec


@given(days, moments)
@example(Recurrence(day_at="02:30", tz="Europe/Berlin"), utc("2026-03-28T12:00"))
@example(Recurrence(day_at="07:00", tz="Pacific/Apia"), utc("2011-12-29T20:00"))
def test_a_daily_timer_fires_once_for_each_date(spec: Recurrence, now: datetime) -> None:
    zone, of_day = ZoneInfo(spec.tz), time.fromisoformat(spec.day_at)
    found = first(spec, now)
    for _ in range(4):
        following = after(spec, found, found)
        local, later = found.astimezone(zone), following.astimezone(zone)
        # A day that a zone has left out altogether falls on the one after it.
        assert later.date() > local.date()
        assert (later.date() - local.date()).days <= 2
        if later.time() != of_day:  # put forward: the time of day did not exist
            assert later.replace(fold=0).utcoffset() != (later - timedelta(hours=25)).utcoffset()
        found = following


@given(intervals, moments, absences)
def test_an_interval_keeps_its_step(spec: Recurrence, due: datetime, absence: timedelta) -> None:
    now = due + absence
    found = after(spec, due, now)
    interval = timedelta(seconds=spec.seconds)
    assert now < found <= now + interval
    assert (found - due) % interval == timedelta(0)


@given(specs, moments, absences)
def test_what_was_missed_is_made_up_once_wholly_or_not_at_all(
    spec: Recurrence, due: datetime, absence: timedelta
) -> None:
    now = due + absence
    once, every, skip = (fire(with_missed(spec, each), due, now) for each in ("once", "all", "skip"))
    assert once.runs
    assert once.again > now
    assert every == Firing(True, after(spec, due, due))
    assert skip.again == once.again
    late = absence > timedelta(seconds=LATE_SECONDS) or now >= every.again
    assert skip.runs is not late


@given(specs, moments, st.integers(1, 20))
def test_each_missed_occurrence_is_made_up_in_turn(spec: Recurrence, due: datetime, number: int) -> None:
    spec = with_missed(spec, "all")
    fired = [due]
    for _ in range(number):
        fired.append(after(spec, fired[-1], fired[-1]))
    now, seen = fired[-1], [due]
    while (again := fire(spec, seen[-1], now).again) <= now:
        seen.append(again)
    assert seen == fired


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        ("2026-03-28", "2026-03-29T01:30"),  # 02:30 does not exist: 03:30 of summer
        ("2026-03-29", "2026-03-30T00:30"),
        ("2026-10-24", "2026-10-25T00:30"),  # 02:30 comes twice: the first, of summer
        ("2026-10-25", "2026-10-26T01:30"),
    ],
)
def test_a_change_of_clocks(day: str, expected: str) -> None:
    spec = Recurrence(day_at="02:30", tz="Europe/Berlin")
    assert first(spec, utc(f"{day}T12:00")) == utc(expected)


def test_a_time_zone_with_no_date_at_all() -> None:
    spec = Recurrence(day_at="07:00", tz="Pacific/Apia")
    seen = [utc("2011-12-29T12:00")]
    for _ in range(3):
        seen.append(first(spec, seen[-1]))
    # There was no 30 December: the mornings of the 29th and of the 31st are neighbours.
    assert seen[1:] == [utc("2011-12-29T17:00"), utc("2011-12-30T17:00"), utc("2011-12-31T17:00")]


def test_a_timer_that_fires_a_little_late_was_not_missed() -> None:
    due = utc("2026-06-01T05:00")
    skip = with_missed(MORNING, "skip")
    assert fire(skip, due, due + timedelta(seconds=59)) == (True, due + timedelta(days=1))
    assert fire(skip, due, due + timedelta(seconds=61)) == (False, due + timedelta(days=1))
    assert fire(MORNING, due, due + timedelta(days=3)) == (True, due + timedelta(days=4))
    assert fire(HOURLY, due, due + timedelta(minutes=90)) == (True, due + timedelta(minutes=120))


def test_a_spec_is_stored_as_short_text() -> None:
    assert HOURLY.encode() == '{"seconds":3600}'
    assert with_missed(MORNING, "all").encode() == '{"day_at":"07:00","tz":"Europe/Berlin","missed":"all"}'
