"""Where credentials of AWS and Google come from: one source for reading and writing, never silently another.

What belongs here: finding them, and renewing those that expire. What does not: signing with them.
"""
