"""Idempotence and transactions of one log: a state machine that the log feeds, and its snapshots on disk.

What it is: which batch is a duplicate, which is out of order, how far readers of committed records may go. Belongs here:
rules and state of producers. Does not belong here: the log's files other than the snapshots.
"""
