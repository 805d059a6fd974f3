"""Values of options: what they may be, and how they are refused. No message quotes one, since it may be a secret."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from tierlog.errors import ConfigError

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|m|min|h)?")
_SECONDS: Final = {"ms": 0.001, "s": 1, "sec": 1, "": 1, "m": 60, "min": 60, "h": 3600}


def read_boolean(key: str, value: str) -> bool:
    """Whether a value says true. Raises ConfigError: it says neither."""
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"{key}: true or false expected")
    return value.lower() == "true"


def read_duration(key: str, value: str) -> timedelta:
    """A duration such as 30s. Raises ConfigError: it is none."""
    found = _DURATION.fullmatch(value)
    if found is None:
        raise ConfigError(f"{key}: a duration such as 30s or 500ms expected")
    return timedelta(seconds=float(found[1]) * _SECONDS[found[2] or ""])


def refuse_login(key: str, value: str) -> None:
    """Raises ConfigError: a URL with a login, which would be sent beside the signature and stand in every message."""
    if "@" in value.partition("://")[2].partition("/")[0]:
        raise ConfigError(f"{key}: a login does not belong into an endpoint: give credentials by their own keys")
