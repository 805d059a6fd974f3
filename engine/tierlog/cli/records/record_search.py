"""``--grep``: the records in which a pattern is found."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

import pyarrow as pa

from tierlog.errors import ConfigError

#: What is looked into.
SEARCHED_COLUMNS = ("key", "value", "headers")


class RecordSearch:
    """Records whose key, value or a header (as ``name=value``) matches somewhere, by bytes.

    Raises:
        ConfigError: the pattern is not a regular expression.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._search = re.compile(pattern.encode("utf-8", "surrogateescape")).search
        except re.error as error:
            raise ConfigError(f"--grep {pattern!r}: {error}") from error

    def matching(self, found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that match, from batches with SEARCHED_COLUMNS; empty batches are dropped."""
        search = self._search
        for rows in found:
            triples = zip(
                rows.column("key").to_pylist(),
                rows.column("value").to_pylist(),
                joined_headers(rows.column("headers")),
                strict=True,
            )
            chosen = [
                place
                for place, (key, value, headers) in enumerate(triples)
                if (key is not None and search(key))
                or (value is not None and search(value))
                or any(search(header) for header in headers)
            ]
            if chosen:
                yield rows if len(chosen) == rows.num_rows else rows.take(chosen)


def joined_headers(column: pa.ListArray, *, null: bytes = b"") -> list[list[bytes]]:
    """The headers of each row as ``name=value``; ``null`` in place of a null value."""
    if column.null_count == len(column):
        return [[]] * len(column)
    entries = column.values  # all rows' pairs in one; the offsets say whose is which
    pairs = [
        b"%s=%s" % (name.encode("utf-8"), null if value is None else value)
        for name, value in zip(entries.field(0).to_pylist(), entries.field(1).to_pylist(), strict=True)
    ]
    return [pairs[start:end] for start, end in itertools.pairwise(column.offsets.to_pylist())]
