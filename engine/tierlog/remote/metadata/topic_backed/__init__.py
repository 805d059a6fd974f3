"""The RemoteLogMetadataManager that stores its events in a topic, and the logs that can hold that topic.

What belongs here: producing events, consuming them into the segment table, assignment, catching up, starting from a
snapshot. What does not: the table and the records (``remote.metadata``), a Kafka
client's calls (``runtime.kafka``).
"""
