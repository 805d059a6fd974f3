"""Writing to buckets, by requests of our own: the shared half of all clouds.

What belongs here: the HTTP client, tries and pauses, the meaning of a server's fault. What does not: one cloud's own
(``stores.s3``, ``stores.gcs``, ``stores.azure``).
"""
