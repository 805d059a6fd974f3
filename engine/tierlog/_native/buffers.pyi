from typing_extensions import Buffer

class BufferPool:
    """Memory for bytes that come and go by the megabyte, mapped by ourselves and used again.

    A buffer returns to the pool when the last view of it is dropped, in any thread. Buffers that are unused for a while
    go back to the system, by a thread that runs only while there are such buffers.

    Args:
        kept_bytes_max: Bytes of free buffers, at most.
        kept_bytes_spare: Beyond so many bytes, free buffers make room for a buffer of another size that has to be
            mapped.
        kept_bytes_min: Bytes of free buffers that always stay.
        idle_ms: Time after which the others go back to the system.

    Thread safety: any number of threads.
    """

    def __init__(self, *, kept_bytes_max: int, kept_bytes_spare: int, kept_bytes_min: int, idle_ms: int) -> None: ...
    def take(self, size_bytes: int) -> memoryview:
        """Writable memory of this size, not cleared; it is the holder's until the last view of it is gone.

        Raises:
            MemoryError: there is none.
        """
    def read_range(self, path: str, start_position: int, end_position_exclusive: int) -> memoryview:
        """The bytes of a range that a file has, in memory as of ``take``: opened, read and closed in one call without
        the interpreter's lock.

        Raises:
            OSError: as the system says. ValueError: no regular file, or a name with a NUL.
        """
    def note_foreign(self, size_bytes: int) -> None:
        """Note that another library's malloc holds, or held, so many bytes of ours. When none were noted for
        ``idle_ms``, malloc is asked to release free memory (glibc's arenas hold it for ever).
        """
    def trim(self, idle_ms: int) -> int:
        """Release now all buffers that were unused for so long; return the bytes."""
    def share(self) -> None:
        """Make this pool sound in children of forks, by whatever code forks: one pool of a process.

        Raises:
            ValueError: it has one.
        """
    @property
    def kept_bytes(self) -> int:
        """Bytes of free buffers, now."""
    @property
    def lent_bytes(self) -> int:
        """Bytes of buffers in use, now."""
    @property
    def has_thread(self) -> bool:
        """Whether there are buffers to release."""

def read_range_into(path: str, start_position: int, out: Buffer) -> int:
    """Read a file from a position on into ``out``: opened, read and closed in one call without the interpreter's lock.
    Returns the bytes read: fewer than ``out`` has room for where the file ends.

    Raises:
        OSError: as the system says; any byte of ``out`` may have been written. ValueError: no regular file, or a name
        with a NUL. BufferError: ``out`` cannot be written.
    """

def copy_into(out: Buffer, data: Buffer) -> int:
    """``data`` to the start of ``out``; the bytes. Other threads run meanwhile, if it is more than a few.

    Raises:
        ValueError: ``out`` is smaller. BufferError: it cannot be written.
    """

def joined(parts: list[memoryview]) -> bytes:
    """Views of bytes, one after another, in one object. Other threads run meanwhile, if they are more than a few.

    Raises:
        ValueError: a view whose items are no bytes.
    """
