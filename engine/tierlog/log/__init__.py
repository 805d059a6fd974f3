"""The files of Kafka's log beside the ``.log``: sparse indexes, producer snapshots, checkpoints, names.

What it is: one module a file format, each of which parses bytes that it is given and writes bytes that Kafka takes;
and what follows from them alone: leader epochs by offset, transactions by replay, an index by rebuilding it.
Why: the tier, the verifier, the exporter and the dump all need the same facts, and need the same faults named.

Belongs here: bytes to values and back, with every rule Kafka has for them. Does not belong here: opening a file,
deciding which segments count (``remote.metadata``), or anything that a user reads (``cli``).

Source: section 7 to 10 of Kafka's log format; ``org.apache.kafka.storage.internals.log`` and ``.checkpoint`` of 4.3.
"""
