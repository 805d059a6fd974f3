"""Record batches: their headers as numpy columns, their records as Arrow, and the writing of them.

What belongs here: reading and building of Kafka's batches of all three magics, given as bytes. What does not: files
and stores (nothing here opens any), the indexes beside a log (``tierlog.log``), which batches a user wants
(``tierlog.remote``). No record becomes a Python object here, but in the builder.
"""

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names

if TYPE_CHECKING:
    from tierlog._native.decoding import RecordDecoder
    from tierlog.records.batch_table import CODEC_NAMES, BatchTable, scan
    from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker
    from tierlog.records.control import (
        ControlKey,
        ControlRecordType,
        EndTransactionMarker,
        LeaderChange,
        encode_control_key,
        parse_control_key,
        parse_control_value,
    )
    from tierlog.records.decoding import DEFAULT_COLUMNS, decode
else:
    # Arrow is a third of a second of a process that only wants the headers of batches.
    _NAMES = {
        "tierlog._native.decoding": ("RecordDecoder",),
        "tierlog.records.batch_table": ("CODEC_NAMES", "BatchTable", "scan"),
        "tierlog.records.builder": ("RecordBatchBuilder", "build_end_transaction_marker"),
        "tierlog.records.control": (
            "ControlKey",
            "ControlRecordType",
            "EndTransactionMarker",
            "LeaderChange",
            "encode_control_key",
            "parse_control_key",
            "parse_control_value",
        ),
        "tierlog.records.decoding": ("DEFAULT_COLUMNS", "decode"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)

__all__ = [
    "CODEC_NAMES",
    "DEFAULT_COLUMNS",
    "BatchTable",
    "ControlKey",
    "ControlRecordType",
    "EndTransactionMarker",
    "LeaderChange",
    "RecordBatchBuilder",
    "RecordDecoder",
    "build_end_transaction_marker",
    "decode",
    "encode_control_key",
    "parse_control_key",
    "parse_control_value",
    "scan",
]
