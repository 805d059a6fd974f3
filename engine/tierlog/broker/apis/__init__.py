"""The APIs about topics, offsets and the server, and those that a read-only server refuses: one module an API.

What belongs here: from a request's fields to an answer's, at all versions. Why: each API is a page of Kafka's protocol.
What does not: Fetch (``fetching``) and groups (``groups``), which have state.
"""
