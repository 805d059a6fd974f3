# What comes of a run of events, as Python sees it. Included by segments.pyx.

cdef object _partition_key(const tl_partition_id *partition):
    return (<char *>partition.topic_id)[:16], partition.partition


cdef class _Report:
    """The outcome of a run, with room for the events that it reports one by one."""
    cdef tl_metadata_report of
    cdef tl_fault fault
    cdef list _removals

    def __cinit__(self):
        memset(&self.of, 0, sizeof(self.of))
        self.of.struct_size = sizeof(self.of)
        memset(&self.fault, 0, sizeof(self.fault))
        self.of.next_offset = -1
        self.of.newest_timestamp_ms = self.of.last_offset = -1
        self.of.oversized_offset = -1
        self.of.refusals_capacity = REFUSALS_MAX
        self.of.removals_capacity = REMOVALS_AT_ONCE
        self.of.refusals = <tl_metadata_refusal *>malloc(REFUSALS_MAX * sizeof(tl_metadata_refusal))
        self.of.removals = <tl_metadata_removal *>malloc(REMOVALS_AT_ONCE * sizeof(tl_metadata_removal))
        if self.of.refusals == NULL or self.of.removals == NULL:
            raise MemoryError("no memory for a report")
        self._removals = []

    def __dealloc__(self):
        free(self.of.refusals)
        free(self.of.removals)
        free(self.of.removal_names)

    cdef int name_removals(self) except -1:
        """Report the removals of partitions that are not assigned, too."""
        self.of.removal_names = <tl_metadata_name *>malloc(REMOVALS_AT_ONCE * sizeof(tl_metadata_name))
        if self.of.removal_names == NULL:
            raise MemoryError("no memory for a report")
        return 0

    cdef object key_of(self, const tl_partition_id *partition, tl_metadata_partitions *partitions):
        cdef tl_metadata_partition *entry = tl_metadata_partitions_find(partitions, partition)
        return (*_partition_key(partition), entry.topic.name[:entry.topic.name_size].decode())

    cdef int take_removals(self, tl_metadata_partitions *partitions) except -1:
        cdef size_t i
        cdef tl_metadata_removal *removal
        cdef tl_metadata_name *name
        for i in range(self.of.removals_count):
            removal = &self.of.removals[i]
            if self.of.removal_names != NULL and self.of.removal_names[i].size:
                name = &self.of.removal_names[i]
                key = (*_partition_key(&removal.partition), name.data[:name.size].decode())
            else:
                key = self.key_of(&removal.partition, partitions)
            self._removals.append(
                (removal.offset, key, removal.state, removal.event_timestamp_ms, removal.broker_id))
        self.of.removals_count = 0
        return 0

    cdef object result(self, tl_status status, tl_metadata_partitions *partitions):
        cdef size_t i
        cdef tl_metadata_refusal *refusal
        error = None
        if status == TL_NO_MEMORY:
            raise MemoryError("no memory for a segment")
        if status == TL_OVER_LIMIT:    # a batch's own size, not a setting of the caller's
            text = f"a batch of {self.fault.found} bytes, at most {self.fault.expected}"
            error = CorruptRecordError(
                text if self.fault.expected else "the segment table is full",
                fault="OVER_LIMIT", base_offset=self.fault.base_offset, expected=self.fault.expected,
                found=self.fault.found)
        elif status != TL_OK:
            error = error_of(status, &self.fault, CorruptRecordError)
        refusals = []
        for i in range(self.of.refusals_count):
            refusal = &self.of.refusals[i]
            key = self.key_of(&refusal.partition, partitions)
            refusals.append(
                (refusal.offset, key, (<char *>refusal.id)[:16], refusal.found_state, refusal.state))
        return {
            "next_offset": self.of.next_offset,
            "applied": self.of.applied,
            "passed_over": self.of.passed_over,
            "tombstones": self.of.tombstones,
            "oversized": self.of.oversized,
            "oversized_offset": self.of.oversized_offset,
            "refused": refusals,
            "refused_count": self.of.refused,
            "removals": self._removals,
            "newest_timestamp_ms": self.of.newest_timestamp_ms,
            "last_record": (self.of.last_offset, self.of.last_value_crc),
            "error": error,
        }
