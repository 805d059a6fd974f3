"""Stores around a store: each changes a method or two of ``PassingStore``, which passes all calls on.

What belongs here: counting calls, masking key prefixes in errors, limiting what flows, and the order in which these
are stacked (``stack``). What does not: stores that reach something of their own (the rooms beside this one).
"""
