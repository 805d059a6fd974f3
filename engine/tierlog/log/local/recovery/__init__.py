"""A log as it is found on disk: loaded, its torn tail cut, its indexes and snapshots rebuilt (Kafka's LogLoader).

Belongs here: everything that happens before a log takes its first call. Does not belong here: a log that runs.
"""
