"""What the storage manager counts: its Prometheus series, by partition too.

What belongs here: every series, its help and its labels. What does not: deciding what happened, which is the caller's.
"""
