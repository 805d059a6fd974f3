"""Files whose changes stay in memory, against files that are changed; below, nothing changes."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.simulated.memory_files import MemoryFiles

NAMES = st.sampled_from(["/d/a", "/d/b", "/d/sub/c", "/d/new/e"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), NAMES, st.binary(max_size=9000)),
        st.tuples(st.just("write_at"), NAMES, st.integers(0, 12_000), st.binary(min_size=1, max_size=5000)),
        st.tuples(st.just("truncate"), NAMES, st.integers(0, 12_000)),
        st.tuples(st.just("write_whole"), NAMES, st.binary(max_size=100)),
        st.tuples(st.just("remove"), st.sampled_from(["/d/a", "/d/b", "/d/sub/c", "/d/sub", "/d/new"])),
        st.tuples(st.just("rename"), NAMES, NAMES),
        st.tuples(st.just("rename"), st.sampled_from(["/d/sub", "/d/new"]), st.sampled_from(["/d/new", "/d/moved"])),
        st.tuples(st.just("make_directories"), st.sampled_from(["/d/new", "/d/sub", "/d/moved"])),
    ),
    max_size=25,
)


def below() -> MemoryFiles:
    files = MemoryFiles()
    files.put("/d/a", b"a" * 10_000)
    files.put("/d/b", b"bb")
    files.put("/d/sub/c", b"c" * 4096)
    return files


def everything(files: Files, folder: str = "/d") -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for entry in files.iter_directory(folder):
        assert files.stat(entry.path).size_bytes == entry.size_bytes
        found[entry.path] = None if entry.is_directory else files.read_whole(entry.path)
        if entry.is_directory:
            found |= everything(files, entry.path)
        else:
            assert len(found[entry.path] or b"") == entry.size_bytes
    return found


def do(files: Files, step: tuple[object, ...]) -> type[StoreError] | None:
    kind, path, *rest = step
    try:
        if kind in ("append", "write_at", "truncate"):
            with files.open_update(path) as file:  # type: ignore[arg-type]
                if kind == "append":
                    file.append(rest[0])  # type: ignore[arg-type]
                elif kind == "write_at":
                    file.write_at(rest[1], position=rest[0])  # type: ignore[arg-type]
                else:
                    file.truncate(rest[0])  # type: ignore[arg-type]
        else:
            getattr(files, str(kind))(path, *rest)
    except StoreError as error:
        return type(error)
    return None


@given(STEPS)
def test_an_overlay_is_like_files_that_are_changed(steps: list[tuple[object, ...]]) -> None:
    """Otherwise a dry run tells of something else than what the run then does; or changes what it looks at."""
    real, expected = below(), below()
    overlay = MemoryFiles(base=real)
    for step in steps:
        assert (do(overlay, step) is None) == (do(expected, step) is None), step
        assert everything(overlay) == everything(expected), step
    assert everything(real) == everything(below())


def test_more_changes_than_memory_are_an_error() -> None:
    """Otherwise a dry run over a large disk takes all memory of the broker's machine."""
    overlay = MemoryFiles(capacity_bytes=1 << 20, base=below())
    with overlay.open_update("/d/a") as file:
        with pytest.raises(StoreError, match="too much to keep in memory"):
            file.append(bytes(2 << 20))
        assert file.size_bytes == 10_000
        file.append(bytes(1 << 19))
        assert overlay.free_bytes("/d") <= 1 << 19
        file.truncate(100)
        assert overlay.free_bytes("/d") == 1 << 20
    assert overlay.read_whole("/d/a") == b"a" * 100


def test_what_is_open_stays_what_it_was() -> None:
    """Otherwise a reader of a removed or renamed file fails, or sees another one."""
    overlay = MemoryFiles(base=below())
    reader = overlay.open_read("/d/a")
    overlay.rename("/d/b", "/d/a")
    overlay.remove("/d/a")
    buffer = bytearray(3)
    assert (reader.read_into(buffer, position=9_998), bytes(buffer[:2])) == (2, b"aa")
    reader.close()
    with pytest.raises(StoreError):
        reader.read_into(buffer, position=0)
    with pytest.raises(ObjectNotFoundError):
        overlay.open_read("/d/a")


def test_a_lock_of_a_real_file_is_taken_and_none_is_made(tmp_path: pathlib.Path) -> None:
    """Otherwise a dry run reads logs while a broker writes them; or leaves a file behind."""
    real = PosixFiles()
    overlay = MemoryFiles(base=real)
    held = overlay.try_record_lock(str(tmp_path / ".lock"))
    assert held is not None
    assert not list(tmp_path.iterdir())
    held.release()
    (tmp_path / ".lock").touch()
    fresh = MemoryFiles(base=real)
    held = fresh.try_record_lock(str(tmp_path / ".lock"))
    assert held is not None
    assert real.try_record_lock(str(tmp_path / ".lock")) is None
    held.release()
    mine = real.try_record_lock(str(tmp_path / ".lock"))
    assert mine is not None
    assert MemoryFiles(base=real).try_record_lock(str(tmp_path / ".lock")) is None
    mine.release()
