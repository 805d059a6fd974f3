"""A log directory that Kafka opens, made of a tier's segments.

What belongs here: writing the logs that count, building missing indexes and transaction indexes anew, and the files
that a broker of another cluster needs. What does not: copying between buckets (``upkeep.copying.bucket_copy``).
"""
