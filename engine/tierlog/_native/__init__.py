"""The native core, thinly wrapped: everything that touches bytes per record, per batch or per index entry.

What belongs here: Cython that takes buffers, drops the GIL, calls ``cext/core`` and checks the status. What does not: a
parsing loop (it belongs in C), a decision (it belongs in ``records`` or above), any I/O but
by a call of the core's over its table of files. Sources are in ``cext/``.
"""
