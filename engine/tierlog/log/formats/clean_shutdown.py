"""``.kafka_cleanshutdown``: that a log directory was closed after all of its logs, and by which broker's run.

That it is there says the former, whatever it holds: brokers before Kafka 3.8 left it empty. Since then it is JSON with
the broker's epoch, which a broker tells the controller when it is back.

Source: Kafka CleanShutdownFileHandler.
"""

from __future__ import annotations

import json
import re
from typing import Final

from typing_extensions import Buffer

FILE_SIZE_BYTES_MAX: Final = 4096
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


def parse_clean_shutdown(data: Buffer) -> int | None:
    """The broker's epoch; None where the file tells none, or cannot be read, which Kafka does not mind either."""
    view = memoryview(data).cast("B")
    if len(view) > FILE_SIZE_BYTES_MAX:
        return None
    try:
        content, _ = json.JSONDecoder().raw_decode(bytes(view).decode("utf-8").lstrip())
    except (ValueError, RecursionError):
        return None
    found = content.get("brokerEpoch") if isinstance(content, dict) else None
    if isinstance(found, str):
        found = int(found) if _NUMBER.fullmatch(found) else None
    if isinstance(found, float):
        found = int(found) if abs(found) < 2.0**63 else None
    if not isinstance(found, int) or isinstance(found, bool) or not -(2**63) <= found < 2**63:
        return None
    return found


def encode_clean_shutdown(broker_epoch: int = -1) -> bytes:
    """The bytes of the file, as Kafka writes them; -1 is no epoch."""
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch
