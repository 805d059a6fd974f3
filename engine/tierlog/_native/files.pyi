from typing_extensions import Buffer

class LocalFile:
    """A regular file of this machine, read by position through the core's table of file operations.

    Raises:
        OSError: with errno and path; IsADirectoryError or EINVAL for what is no regular file.

    Thread safety: any number of threads may read; close when none does. The GIL is released for every read.
    """

    def __init__(self, path: str) -> None: ...
    @property
    def size_bytes(self) -> int:
        """Now, by the system."""
    def read_into(self, buffer: Buffer, *, position: int) -> int:
        """Fill ``buffer`` from ``position``; returns the bytes read, fewer only at the end of the file.

        Raises:
            OSError. ValueError: closed, or a position below 0.
        """
    def close(self) -> None:
        """Idempotent."""
