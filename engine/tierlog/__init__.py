"""Tierlog: Kafka tiered storage (KIP-405) without a broker.

What belongs here: the names a user imports first, each loaded when it is first used, so that ``import tierlog`` is
cheap and cannot fail for want of an extra. What does not: anything else.

>>> import tierlog
>>> reader = tierlog.read("s3://bucket/prefix", "orders")  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tierlog._version import __version__
from tierlog.errors import TierlogError

if TYPE_CHECKING:
    from tierlog import errors, log, records, remote
    from tierlog.reading import read
    from tierlog.remote.storage import open_tier

__all__ = ["TierlogError", "__version__", "errors", "log", "open_tier", "read", "records", "remote"]

_MODULES = ("errors", "log", "records", "remote")
_NAMES = {"open_tier": "tierlog.remote.storage", "read": "tierlog.reading"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"tierlog.{name}")
    if name in _NAMES:
        value: object = getattr(importlib.import_module(_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tierlog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
