"""The plugin's objects, byte by byte.

What belongs here: keys, manifests read and written, custom metadata, where each part of a segment lies. What does not:
finding segments in a bucket (``layouts``), the bytes of a chunk (``chunks``).
"""
