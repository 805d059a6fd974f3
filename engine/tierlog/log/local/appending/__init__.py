"""What comes into a log, on its way to a segment: checks, and what a leader writes into a batch.

Belongs here: rules about one append's bytes. Does not belong here: files, offsets of the log, producers' state.
"""
