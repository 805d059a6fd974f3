"""The files of Kafka's log beside the ``.log``: sparse indexes, producer snapshots, checkpoints, names.

What it is: one module a file format. Each parses given bytes, and writes bytes that Kafka accepts. Why: the tier, the
verifier, the exporter and the dump need the same facts and name the same faults.

Belongs here: bytes to values and back, with every rule that Kafka has for them. Does not belong here: opening a file,
or comparing one file with another (``log.checks``).

Source: ``org.apache.kafka.storage.internals.log`` and ``.checkpoint`` of Kafka 4.3; docs/formats/log-files.md.
"""
