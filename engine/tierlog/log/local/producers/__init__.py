"""Idempotence and transactions of one log: a state machine that the log feeds, and its snapshots on disk.

Belongs here: which batch is a duplicate or out of order, how far readers of committed records may go. Does not belong
here: the log's files, other than the snapshots.
"""
