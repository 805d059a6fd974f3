"""Named places in the code: a simulation counts how often it came by each, and one that it never reached fails it.

A call without a counter costs one comparison. Marks stand where something rare happens, never in a loop over bytes,
records or batches. Nothing but tests sets a counter, and the code never reads one.
"""

from __future__ import annotations

from collections.abc import Callable

_count: Callable[[str], None] | None = None


def mark(name: str) -> None:
    """Say that the code came by here.

    Args:
        name: Unique in the engine: the module's noun, and what happened there.
    """
    if _count is not None:
        _count(name)


def count_marks(count: Callable[[str], None] | None) -> None:
    """Have a function called with the name of each mark from now on; None ends it."""
    global _count  # noqa: PLW0603 - one process counts for one run
    _count = count
