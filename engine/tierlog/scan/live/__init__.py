"""The living end of a topic beside its tier: what brokers have, and where the one begins and the other ends.

What belongs here: the seam of a partition, whether both sides of it are of one log, brokers' records as Arrow. What
does not: the tier's side (``scan.planning``, ``scan.reading``), confluent-kafka (``runtime.kafka``).
"""
