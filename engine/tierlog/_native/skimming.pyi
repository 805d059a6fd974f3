from collections.abc import Iterable, Sized
from typing import Final, Protocol, final

from typing_extensions import Buffer

BYTES: Final[int]
"""A step over ``argument`` bytes."""
SHORT: Final[int]
"""A step over a string, or bytes, behind an int16."""
LONG: Final[int]
"""A step over a string, or bytes, behind an int32."""
COMPACT: Final[int]
"""A step over a string, or bytes, behind a varint of one more."""
OPTIONAL: Final[int]
"""A step over an entity that may be null: the ``argument`` steps behind it are the entity's."""
ARRAY: Final[int]
"""A step over an array behind an int32: the ``argument`` steps behind it are those of an element."""
COMPACT_ARRAY: Final[int]
"""A step over an array behind a varint of one more."""
NO_TAGS: Final[int]
"""A step over a count of tagged fields, which has to be 0."""

class _Steps(Sized, Iterable[tuple[int, int, bool]], Protocol): ...

@final
class Skimmer:
    """Passes over entities of one class.

    Args:
        steps: (kind, argument, whether null is allowed) each, in the order of the wire.

    Raises:
        OverflowError: a number of a step is below 0 or above 2**32 - 1.

    Thread safety: any number of threads.
    """

    def __init__(self, steps: _Steps) -> None: ...
    def count_elements(self, data: Buffer, position: int, *, elements_max: int) -> int | None:
        """Count the elements of all arrays together of the entity at a position; ``elements_max + 1`` where they are
        more than ``elements_max``; None if there is no entity that is whole, of counts that its bytes allow and without
        tagged fields. Without the interpreter's lock.

        Raises:
            BufferError: ``data`` is not contiguous. OverflowError: ``position`` is below 0.
        """
