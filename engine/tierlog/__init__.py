"""Tierlog: Kafka tiered storage (KIP-405) without a broker.

What belongs here: the names a user imports first, each loaded when it is first used, so that ``import tierlog`` is
cheap and cannot fail for want of an extra. What does not: anything else.

>>> import tierlog
>>> reader = tierlog.read("s3://bucket/prefix", "orders")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names
from tierlog._version import __version__
from tierlog.errors import TierlogError

if TYPE_CHECKING:
    from tierlog import errors, log, records, remote
    from tierlog.reading import read
    from tierlog.remote.storage import open_tier
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {"open_tier": "tierlog.remote.storage", "read": "tierlog.reading"},
        modules=("errors", "log", "records", "remote"),
    )

__all__ = ["TierlogError", "__version__", "errors", "log", "open_tier", "read", "records", "remote"]
