"""Times as people read and write them."""

from __future__ import annotations

import datetime
import re

from tierlog.errors import ConfigError

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
#: A number outside of them (1973 to 2286) is no plausible time in milliseconds, but seconds, microseconds or a date
#: without its hyphens.
_PLAUSIBLE_MS = range(10**11, 10**13)
_DATE = re.compile(r"((?:19|20)\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?:([01]\d|2[0-3])([0-5]\d)([0-5]\d)?)?")


def utc_text(timestamp_ms: int) -> str:
    """ISO 8601 in UTC; "-" for none (-1); the number itself outside of the calendar."""
    if timestamp_ms == -1:
        return "-"
    try:
        moment = _EPOCH + datetime.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    # strftime does not pad the years before 1000.
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def parse_duration_ms(text: str) -> int | None:
    """Return milliseconds of ``90s``, ``15m``, ``1h``, ``7d`` …; None for anything else."""
    found = re.fullmatch(r"([0-9]{1,12})(ms|[smhdw])", text)
    return None if found is None else int(found[1]) * UNITS_MS[found[2]]


def parse_moment(text: str | None, option: str, default: int, *, now_ms: int) -> int:
    """Return milliseconds since 1970 of a time: ISO 8601 (UTC where no zone is given), how long ago (``90s``, ``1h``,
    ``7d``), ``now``, or milliseconds.

    Raises:
        ConfigError: the text has none of these forms, or is a number that is no plausible time in milliseconds.
    """
    if text is None:
        return default
    if text == "now":
        return now_ms
    if re.fullmatch(r"-?[0-9]+", text):
        return _plausible(text, option)
    duration_ms = parse_duration_ms(text)
    if duration_ms is not None:
        moment_ms = now_ms - duration_ms
        if moment_ms < 0:
            raise ConfigError(f"{option} {text!r} is before 1970: it is how long ago, as 90s, 15m, 1h, 7d, 2w")
        return moment_ms
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text!r}: not ISO 8601 ({error}), nor how long ago (1h), nor ms") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return -(-(moment - _EPOCH) // _MILLISECOND)  # rounded up: no record before the time is of that time or later


def _plausible(text: str, option: str) -> int:
    """Return the time, if it is plausible. Raises ConfigError, with what to write instead."""
    number = int(text)
    if number in _PLAUSIBLE_MS and _DATE.fullmatch(text) is None:
        return number
    if re.fullmatch(r"(?:19|20)\d\d", text):
        advice = f"for that year write {text}-01-01"
    elif (date := _DATE.fullmatch(text)) is not None:
        year, month, day, hour, minute, second = date.groups()
        clock = f"T{hour}:{minute}:{second or '00'}Z" if hour else ""
        advice = f"for that day write {year}-{month}-{day}{clock}"
    elif number in range(10**8, 10**10):
        advice = f"it looks like seconds: write {number * 1000}, or {utc_text(number * 1000)}"
    elif number // 1000 in _PLAUSIBLE_MS:
        advice = f"it looks like microseconds: write {number // 1000}, or {utc_text(number // 1000)}"
    elif number // 10**6 in _PLAUSIBLE_MS:
        advice = f"it looks like nanoseconds: write {number // 10**6}, or {utc_text(number // 10**6)}"
    elif number in range(10**11):
        advice = f"if you mean that, write {utc_text(number)}"
    else:
        advice = "write it as 2022-06-12T02:13:30Z, or how long ago, as 1h"
    raise ConfigError(f"{option} {text} is no plausible time in milliseconds since 1970; {advice}")
