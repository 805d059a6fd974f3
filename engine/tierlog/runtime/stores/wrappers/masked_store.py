"""A store whose errors show keys without their prefix (``key.prefix.mask``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tierlog.errors import StoreError
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import Call, PassingStore

MASK = "<prefix>/"
Result = TypeVar("Result")
Entry = TypeVar("Entry")


class MaskedStore(PassingStore):
    """Passes everything on; in messages the prefix becomes ``<prefix>/``.

    Args:
        store: What answers.
        prefix: What no message may show; not empty.
    """

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        super().__init__(store)
        self._prefix = prefix

    def pass_on(self, call: Call, run: Callable[[], Result]) -> Result:  # noqa: ARG002 - whatever the call is
        """See PassingStore."""
        with self._masked():
            return run()

    def pass_listing(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """See PassingStore."""
        with self._masked():
            yield from entries

    @contextmanager
    def _masked(self) -> Iterator[None]:
        """Take the prefix out of the errors of the block."""
        try:
            yield
        except StoreError as error:
            if self._prefix not in str(error):
                raise
            masked = type(error)(str(error).replace(self._prefix, MASK))
            masked.refused = error.refused
            raise masked from None  # the cause would print the prefix again
