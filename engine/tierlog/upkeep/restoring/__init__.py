"""Metadata from a bucket alone: which whole segments there are, as the metadata topic had them.

What belongs here: walking a bucket partition by partition, judging which segments are whole, and writing the segments
found as a snapshot, as a topic's folder or into a running Kafka. Why: a cluster that is lost takes its metadata topic
with it, and without it no broker finds a segment. What does not: log bytes (``tierlog verify`` reads those), and any
change of the bucket.
"""
