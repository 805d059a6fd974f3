"""What a server tells of itself: its series for Prometheus, the lag of its loop, and the listener that answers scrapes.

What belongs here: counting, and showing what was counted. Why: an operator asks a running server, and no log is read
for numbers. What does not: deciding anything by a count.
"""
