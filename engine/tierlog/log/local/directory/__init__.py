"""The parts of a log directory that are no log's own.

What it is: the lock, the identity, the checkpoints and the marker of a clean stop. Why: a broker, an embedder and
``tierlog recover`` must agree on a directory's owner and on its logs' checkpoints, to the last byte.

Belongs here: files beside the partitions' folders. Does not belong here: parsing them (``log.formats``), the logs
(``unified_log``), and when all this happens (``log_directory``).
"""
