"""A folder as a store.

What belongs here: durable writes, uploads that appear at once or not at all, a folder that is gone. What does not:
files as such (``runtime.machine.files``).
"""
