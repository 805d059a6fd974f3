# Snapshots of the table (segments.pyx), over tierlog/segment_snapshot.h.

SNAPSHOT_HEAD_BYTES = TL_SNAPSHOT_HEAD_BYTES
SNAPSHOT_SECTION_BYTES_MAX = TL_SNAPSHOT_SECTION_MAX
SNAPSHOT_TOPIC = TL_SNAPSHOT_TOPIC
SNAPSHOT_REMOVALS = TL_SNAPSHOT_REMOVALS
SNAPSHOT_PARTITIONS = TL_SNAPSHOT_PARTITIONS
SNAPSHOT_SEGMENTS = TL_SNAPSHOT_SEGMENTS
SNAPSHOT_END = TL_SNAPSHOT_END


def read_snapshot_head(const uint8_t[::1] head not None):
    cdef tl_snapshot_head found
    cdef tl_fault fault
    if head.shape[0] != TL_SNAPSHOT_HEAD_BYTES:
        raise ValueError("a section's head has 32 bytes")
    check_status(tl_snapshot_head_read(&head[0], &found, &fault), &fault, CorruptIndexError)
    return found.kind, <size_t>found.payload_size


def check_snapshot_section(const uint8_t[::1] section not None):
    cdef tl_snapshot_head head
    cdef tl_fault fault
    cdef tl_status status
    cdef const uint8_t *start = &section[0] if section.shape[0] else NULL
    cdef size_t size = <size_t>section.shape[0]
    with nogil:
        status = tl_snapshot_check(start, size, &head, &fault)
    check_status(status, &fault, CorruptIndexError)
    return head.kind, head.number, head.count, head.more, head.bytes, head.crc


def seal_snapshot_section(uint8_t[::1] section not None, uint32_t kind, uint32_t number, uint32_t count, uint32_t more,
                          uint32_t size):
    cdef tl_snapshot_head head
    if section.shape[0] < TL_SNAPSHOT_HEAD_BYTES or section.shape[0] > TL_SNAPSHOT_SECTION_MAX or section.shape[0] % 8:
        raise ValueError("a section has a head and a payload of a multiple of 8 bytes")
    memset(&head, 0, sizeof(head))
    head.kind = kind
    head.number = number
    head.count = count
    head.more = more
    head.bytes = size
    head.payload_size = <uint64_t>section.shape[0] - TL_SNAPSHOT_HEAD_BYTES
    tl_snapshot_seal(&section[0], head)


cdef int _compare_partitions(const void *a, const void *b) noexcept nogil:
    cdef const tl_snapshot_partition *one = <const tl_snapshot_partition *>a
    cdef const tl_snapshot_partition *other = <const tl_snapshot_partition *>b
    cdef int order = memcmp(one.id.topic_id, other.id.topic_id, 16)
    if order:
        return order
    return (one.id.partition > other.id.partition) - (one.id.partition < other.id.partition)


@cython.final
@cython.no_gc_clear    # the table is left when this goes
cdef class SnapshotWriter:
    cdef NativeSegmentTable _of
    cdef tl_snapshot_partition *_partitions
    cdef tl_snapshot_writer *_writer
    cdef size_t _count
    cdef bint _in_segments
    cdef list _names    # the partitions' names point into it

    def __init__(self, NativeSegmentTable table not None):
        if self._of is not None:
            raise ValueError("a writer is made once")
        table._enter()
        self._of = table
        cdef tl_metadata_partition entries[64]
        cdef dict names = {}
        cdef bytes name
        cdef uint64_t at = 0
        cdef size_t count, i, room = <size_t>tl_metadata_partitions_count(table._partitions)
        self._partitions = <tl_snapshot_partition *>malloc((room + 1) * sizeof(tl_snapshot_partition))
        if self._partitions == NULL:
            raise MemoryError("no memory for a snapshot")
        while True:
            count = tl_metadata_partitions_list(table._partitions, &at, entries, 64)
            if count == 0:
                break
            for i in range(count):
                name = entries[i].topic.name[:entries[i].topic.name_size]
                name = names.setdefault(name, name)
                self._partitions[self._count].id = entries[i].id
                self._partitions[self._count].place = entries[i].place
                self._partitions[self._count].last_applied_offset = entries[i].applied
                self._partitions[self._count].name = PyBytes_AS_STRING(name)
                self._partitions[self._count].name_size = <size_t>PyBytes_GET_SIZE(name)
                self._count += 1
        self._names = list(names)
        qsort(self._partitions, self._count, sizeof(tl_snapshot_partition), _compare_partitions)
        if tl_snapshot_writer_create(&self._writer, table._table, self._partitions, self._count) != TL_OK:
            raise MemoryError("no memory for a snapshot")

    def __dealloc__(self):
        tl_snapshot_writer_destroy(self._writer)
        free(self._partitions)
        if self._of is not None:
            self._of._leave()

    cdef int _require(self) except -1:
        if self._writer == NULL:
            raise ValueError("no writer was made")
        return 0

    @property
    def partitions(self):
        return self._count

    @property
    def segments(self):
        self._require()
        return tl_snapshot_writer_segments(self._writer)

    @property
    def as_kafka(self):
        self._require()
        return tl_snapshot_writer_as_kafka(self._writer)

    def next_section(self, uint32_t number, uint8_t[::1] out not None):
        cdef size_t size = 0
        cdef tl_status status = TL_OK
        self._require()
        if out.shape[0] < TL_SNAPSHOT_SECTION_MAX:
            raise ValueError("no room for a section")
        with nogil:
            if not self._in_segments:
                status = tl_snapshot_put_partitions(self._writer, number, &out[0], &size)
                self._in_segments = status == TL_OK and size == 0
            if self._in_segments:
                status = tl_snapshot_put_segments(self._writer, number, &out[0], &size)
        if status == TL_BAD_ARGUMENT:
            raise RuntimeError("the table was changed while its snapshot was written")
        if status != TL_OK:
            raise ValueError("a topic's name is too long for a snapshot")
        return size


@cython.final
@cython.no_gc_clear
cdef class SnapshotLoader:
    cdef NativeSegmentTable _of
    cdef tl_snapshot_loader *_loader

    def __init__(self, NativeSegmentTable table not None, uint64_t segments):
        cdef tl_fault fault
        if self._of is not None:
            raise ValueError("a loader is made once")
        table._enter()
        self._of = table
        memset(&fault, 0, sizeof(fault))
        check_status(tl_snapshot_loader_create(&self._loader, table._table, segments), &fault, CorruptIndexError)

    def __dealloc__(self):
        tl_snapshot_loader_destroy(self._loader)
        if self._of is not None:
            self._of._leave()

    cdef int _require(self) except -1:
        if self._loader == NULL:
            raise ValueError("no loader was made, or it has failed")
        return 0

    cdef void _drop_after(self, tl_status status) noexcept:
        if status != TL_OK:
            tl_snapshot_loader_destroy(self._loader)
            self._loader = NULL

    def load(self, const uint8_t[::1] section not None):
        cdef tl_snapshot_head head
        cdef tl_fault fault
        cdef tl_status status
        cdef const uint8_t *start = &section[0] if section.shape[0] else NULL
        cdef size_t size = <size_t>section.shape[0]
        self._require()
        with nogil:
            status = tl_snapshot_check(start, size, &head, &fault)
            if status == TL_OK and head.kind == TL_SNAPSHOT_PARTITIONS:
                status = tl_snapshot_load_partitions(self._loader, self._of._partitions, start, size, &fault)
            elif status == TL_OK:
                status = tl_snapshot_load_segments(self._loader, start, size, &fault)
        self._drop_after(status)
        check_status(status, &fault, CorruptIndexError)
        return head.kind, head.number, head.count, head.more, head.bytes, head.crc

    def end(self):
        cdef tl_fault fault
        cdef tl_status status
        self._require()
        with nogil:
            status = tl_snapshot_load_end(self._loader, &fault)
        self._drop_after(status)
        check_status(status, &fault, CorruptIndexError)
