"""Caches of fetched data: descriptions, indexes, chunks.

What belongs here: chunks in memory or on a disk, manifests, indexes, and one rule of eviction for all. What does not:
deciding what to fetch (``fetch``).
"""
