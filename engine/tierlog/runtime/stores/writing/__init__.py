"""Writing to buckets, by requests of our own: what all clouds share.

What belongs here: the HTTP client, tries and pauses, what a server's fault means. What does not: what one cloud alone
knows (``stores.s3``, ``stores.gcs``, ``stores.azure``).
"""
