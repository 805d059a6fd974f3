"""Files that hold a state of the metadata: our columnar snapshot, and the forms of the KIP and of Kafka 3.x.

What belongs here: file formats and their safe writing. What does not: the times at which a snapshot is written or
loaded.
"""
