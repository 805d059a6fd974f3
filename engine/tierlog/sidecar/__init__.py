"""A storage manager served to the brokers of its machine, over a Unix-domain socket.

What belongs here: the sidecar's own protocol (docs/sidecar-protocol.md), the opening of the files that a copy names,
and the process around one ``TieredStorageManager``. Why: a JVM broker's plugin is its client, and needs no library but
Kafka's. What does not: sockets and their limits (``serving``), what is stored and how (``remote.storage``).
"""
