"""Reading buckets, by obstore.

What belongs here: calls that can be cancelled and that hold no thread, obstore's errors as ours, redirects refused,
whole objects compared with the store's checksum. What does not: requests of our own (``stores.writing``).
"""
