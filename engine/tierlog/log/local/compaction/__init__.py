"""Compaction of local logs: the latest record of each key stays, older ones go.

What it is: Kafka's log cleaner: which log is compacted next and how far, the threads that do it, and the rewriting of
segments. Why: a compacted topic that is only appended to fills its disk.

Belongs here: the choice of logs, the states of cleanings, the threads, their throttle and metrics. Does not belong
here: the files of a segment (``log.local.segments``), the rules of retention (``log.local.retention``).

- ``cleanable_logs``: what may be cleaned of a log, and how urgent that is.
- ``cleaning_states``: what is cleaned now, and what is paused while its log is shortened.
- ``log_cleaner_manager``: both for the logs of one directory, with the cleaner's checkpoint.
- ``cleaner``: one cleaning of one log, over a map of its keys in the core.
- ``cleaned_transactions``: which batches were aborted, and which markers may go.
- ``segment_windows``: the bytes of a segment, a window of whole batches at a time.
- ``log_cleaner``: the threads, over the managers of one or several directories, and ``throttler``: their rate of bytes.

Source: Kafka LogCleaner, LogCleanerManager, Cleaner.
"""
