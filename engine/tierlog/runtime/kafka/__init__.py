"""A running Kafka, as a small client of our own shape over confluent-kafka (extra ``kafka``).

``client_keys`` turns the Java client's keys into librdkafka's; ``topic_admin``, ``record_producer`` and
``record_consumer`` are the calls; ``kafka_errors`` translates their errors. What belongs here: everything that knows
confluent-kafka, which no other room imports. Why: each call has a deadline, each error a kind of ours, and no thread
outlives ``close``. What does not: the content of records.
"""
