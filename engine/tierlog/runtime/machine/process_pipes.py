"""The standard streams of a process."""

from __future__ import annotations

import os
import sys
from typing import BinaryIO


def point_at_nothing(descriptor: int) -> None:
    """Point a descriptor at nothing: reading from it ends at once, what is written to it is dropped."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, descriptor)
    os.close(nothing)


def claim_pipes(*, out_buffer_bytes: int) -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output under other descriptors, for a protocol that nothing else may write into.

    From here on descriptor 0 is empty, and descriptor 1 goes to standard error.
    """
    given = os.fdopen(os.dup(0), "rb")
    out = os.fdopen(os.dup(1), "wb", buffering=out_buffer_bytes)
    point_at_nothing(0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return given, out
