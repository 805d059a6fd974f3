"""Writing to Azure Blob Storage, by blocks.

What belongs here: the blocks, and URLs as Spark users write them. What does not: sending them (``stores.writing``),
signing addresses and reading (``stores.reading``).
"""
