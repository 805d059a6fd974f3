"""Times as people read them."""

from __future__ import annotations

import datetime

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


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
