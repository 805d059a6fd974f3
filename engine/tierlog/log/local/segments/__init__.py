"""One segment on disk, and the row of them that makes a log.

Belongs here: whatever touches a segment's files: appending, reading, cutting, renaming away. Does not belong here:
rules about producers, epochs and retention; several logs.

- ``log_segment``: a ``.log`` and its indexes; ``segment_view`` is the readers' half. An append is one write of the
  producer's own buffer, and no fsync. A read is an index lookup and one or two reads of 4 KiB of headers, over which C
  hops (``tierlog/batch_search.h``); its answer is (file, position, size): the bytes go from the file to the reader,
  once. A read into which a truncation came is made again.
- ``index_file``: an index that grows: its end in memory, written by the page; in front of it the first entry of each
  page, so that a lookup reads one page. Nothing is preallocated. Readers take its lock for memory work alone.
"""
