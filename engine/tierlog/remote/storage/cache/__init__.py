"""What is kept of what was fetched.

What belongs here: chunks in memory or on a disk, manifests, indexes, and one rule of eviction for all. What does not:
deciding what to fetch (``fetch``).
"""
