"""Waiting and asking: what fetches wait for, who drives the waits, and which request a store gets next.

What belongs here: one load for all who ask (``single_flight``), waits that a thread or an event loop drives
(``awaiting``), the lanes of requests (``store_requests``). What does not: what a chunk is.
"""
