"""Stores around a store.

What belongs here: one that passes all calls on, and what is made of it: secrets masked in errors, rate limits. What
does not: stores that reach something of their own (``runtime.stores``).
"""
