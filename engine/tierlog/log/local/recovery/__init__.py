"""A log as it is found on disk: loaded, its torn tail cut, its indexes and snapshots rebuilt (Kafka's LogLoader).

Belongs here: everything that happens before a log takes its first call. Does not belong here: a log that runs.

Where this is more careful than Kafka 4.3, so that a crash at any point, in here too, leaves what loads to the same log:

- What lies behind a bad batch is deleted, durably, before the batch is cut off; Kafka cuts first. A cut in a segment
  that lacks its index counts too; Kafka reads such a segment twice and misses it.
- A batch whose offsets do not rise is where the log is cut; Kafka goes on, or drops the whole segment.
- A closed segment that lost whole batches from its end, which a power cut takes before it is synced, is where the log
  ends: the segments behind the hole were never flushed, and go. Kafka goes on behind it. This is done only where the
  recovery point is known and the segments lie behind it; else a hole stays, as in Kafka, and is logged: it may be
  compaction's. Segments that are compacted, or show gaps between their batches, are left alone too: a
  compacted log syncs a segment before the next one begins, and a log that becomes compacted what it has closed. The
  hole stays of a log whose power was cut before, and whose topic became compacted before it was loaded.
- The steps of a swap or a split are fsynced one after the other, from the lowest segment up.
- A missing time index is rebuilt, not left empty, and so is the index of the active segment where it is plainly wrong
  after a clean stop.
- Snapshots of segments that are not recovered stay: the tier needs them.
"""
