"""A log directory that Kafka opens, made of a tier's segments.

What belongs here: the files, indexes and transactions that are missing built anew, and what a broker of another cluster
needs. What does not: copying between buckets (``upkeep.bucket_copy``).
"""
