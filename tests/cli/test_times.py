"""Times as people write them on the command line."""

from __future__ import annotations

import pytest

from tierlog.cli.times import parse_moment, utc_text
from tierlog.errors import ConfigError

NOW_MS = 1_700_000_000_000


def parse(text: str) -> int:
    return parse_moment(text, "--since", -5, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1655000010000", 1_655_000_010_000),
        ("2022-06-12T02:13:30Z", 1_655_000_010_000),
        ("2022-06-12T04:13:30+02:00", 1_655_000_010_000),
        ("2022-06-12 02:13:30.5", 1_655_000_010_500),
        ("2022-06-12T02:13:30.0005Z", 1_655_000_010_001),
        ("2022-06-13", 1_655_078_400_000),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1969-12-31", -86_400_000),
        ("now", NOW_MS),
        ("250ms", NOW_MS - 250),
        ("90s", NOW_MS - 90_000),
        ("15m", NOW_MS - 900_000),
        ("1h", NOW_MS - 3_600_000),
        ("7d", NOW_MS - 604_800_000),
        ("2w", NOW_MS - 1_209_600_000),
    ],
)
def test_each_form(text: str, expected: int) -> None:
    """Otherwise a time is another one than was written."""
    assert parse(text) == expected


def test_none_given() -> None:
    """Otherwise there is no way to leave a bound open."""
    assert parse_moment(None, "--since", -5, now_ms=NOW_MS) == -5


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("20220613", "write 2022-06-13"),
        ("202206131530", "write 2022-06-13T15:30:00Z"),
        ("20220613153012", "write 2022-06-13T15:30:12Z"),
        ("2022", "write 2022-01-01"),
        ("1655000010", "seconds: write 1655000010000, or 2022-06-12T02:13:30.000Z"),
        ("1655000010000000", "microseconds: write 1655000010000, or"),
        ("1655000010000000000", "nanoseconds: write 1655000010000, or"),
        ("86400000", "1970-01-02T00:00:00.000Z"),
        ("0", "write 1970-01-01T00:00:00.000Z"),
        ("-1", "as 1h"),
        ("9" * 40, "as 1h"),
        ("yesterday", "how long ago"),
        ("1 h", "how long ago"),
        ("1655000010s0", "how long ago"),
        ("99999w", "before 1970"),
    ],
)
def test_what_nobody_means_is_refused_with_what_to_write(text: str, advice: str) -> None:
    """Otherwise `--since 20220613` is a time in January 1970, and all records are printed as if they were newer."""
    with pytest.raises(ConfigError, match=advice):
        parse(text)


def test_times_outside_of_the_calendar_are_numbers() -> None:
    """Otherwise a record with a wild timestamp ends the command."""
    assert (utc_text(-1), utc_text(10**18)) == ("-", str(10**18))
