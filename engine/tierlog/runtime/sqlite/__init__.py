"""SQLite databases: files of their own, which SQLite opens itself.

What belongs here: opening a database whose commits survive, and the meaning of SQLite's errors. Why: ``machine.files``
cannot stand below SQLite, so that this is a seam of its own: rooms above take a ``Database``, and tests pass them one
that fails. What does not: tables and their rows.
"""
