"""The living log of one partition, as Kafka keeps it: begun, not whole.

What it is: what a leader and a follower do to a partition's files, byte for byte as Kafka 4.3 does. Why: a broker that
embeds Tierlog needs a log, tests need one that behaves as Kafka's, and the tier copies its segments.

Belongs here: the rules and the state of one log. Does not belong here: parsing a file (``log.formats``), judging files
by each other (``log.checks``), several logs of one broker, replication (which asks this room), anything remote.

What stands, from the bottom (nothing of it touches a file but by what it is handed):

- ``kafka_errors``: Kafka's names and codes of what is refused.
- ``append_checks``: what a leader checks in a batch and writes into it, and what a follower checks. C
  (``cext/core/log_append.h``): the bytes are read once for the checksum and once for the records, none is copied; a
  compressed batch is inflated into a scratch that is bounded.
- ``appending.recompression``: a batch of a topic whose ``compression.type`` is its own: the stream of records changes
  its codec as a whole, and is checked and assigned as a producer's would be.
- ``leader_epoch_cache``: the lineage, over the immutable ``LeaderEpochs`` of ``log.formats``.
- ``producer_state``: idempotence and transactions, as a state machine; ``producer_entries`` (one producer),
  ``producer_appends`` (one append of one), ``transaction_verification`` (guards).
- ``cext/core/index_append.h`` (``IndexTail``): which entries an append makes in the offset and the time index.
- ``segments.index_file``: an offset or time index that grows: its end in memory, written by the page; in front of it
  the first entry of each page, so that a lookup reads one page. Nothing is preallocated, and no file is read before it
  is asked for: trailing zeros of Kafka's do not count, and go when the file is first written.
- ``segments.log_segment``: a ``.log`` and its indexes. An append: one ``write`` of the producer's own buffer; no fsync.
  A read: an index lookup and one or two ``pread`` of 4 KiB of headers, over which C hops
  (``cext/core/batch_search.h``); the answer is (file, position, size): the bytes go from the file to whoever asked,
  once. Readers take no lock but an index's, for memory work alone; a read into which a truncation came is made again.
- ``segments.log_segments``: an immutable tuple of segments that is replaced as a whole: readers take it without a lock,
  a roll or a deletion makes another, and a file is closed when its last reader has gone.

What is to come, in this order, and what each costs:

- ``producer_snapshots``, ``recovery``: one ``pread`` pass of 1 MiB pieces over what lies behind the recovery point, by
  ``tl_range_check`` and ``IndexTail``; then checkpoints, retention and ``unified_log``, which holds the one lock.

The order of an append is Kafka's: check and assign, epochs (fsynced if they changed), roll, producers, write, end
offset, producers' new state, transaction index, last stable offset, flush. A failed fsync is never tried again.

Source: Kafka UnifiedLog, LocalLog, LogSegment, LogLoader, ProducerStateManager, LeaderEpochFileCache.
"""
