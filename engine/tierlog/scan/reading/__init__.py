"""Arrow from ranges: records, the tables beside them, and counts and extremes from batch headers.

What belongs here: reading a range that a plan or a caller names. What does not: choosing ranges (``scan.planning``).
"""
