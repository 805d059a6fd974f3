"""Files that this process has open."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator


def iter_open_files() -> Iterator[pathlib.Path]:
    """What each descriptor of this process stands for: a path, or the kernel's word for what has none."""
    for descriptor in pathlib.Path("/proc/self/fd").iterdir():
        try:
            yield descriptor.readlink()
        except FileNotFoundError:  # the descriptor of this very scan, or one that another thread closed
            continue


def count_open_files(folder: pathlib.Path) -> int:
    """How many descriptors this process has of what lies below a folder, or of that path itself.

    Not of all descriptors: others come and go with threads, servers and the collector's work, whatever a test does.
    """
    return sum(path.is_relative_to(folder) for path in iter_open_files())
