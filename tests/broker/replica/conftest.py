"""How plain files of this machine are handed out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tierlog.broker.replica import file_batches


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that does not tell what it has of a file in memory: before Linux 6.5, of a network, of another owner."""

    def nothing(*_: object, **__: object) -> Iterator[None]:
        yield from ()

    monkeypatch.setattr(file_batches.FileBatchReads, "find_ready", nothing)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All as parts of files, however few bytes they have."""
    monkeypatch.setattr(file_batches, "_PART_BYTES_LEAST", 1)


@pytest.fixture(params=["parts", "untold"])
def file_reads(request: pytest.FixtureRequest) -> None:
    """All as parts of files, or nothing so."""
    request.getfixturevalue(request.param)
