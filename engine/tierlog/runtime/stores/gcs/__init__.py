"""Writing to Google Cloud Storage.

What belongs here: uploads that go on where they stopped, and requests that only Google knows. What does not: sending
them (``stores.writing``), reading (``stores.reading``).
"""
