"""The output of ``tierlog cat``: a scan's options, its records as lines of text, and the reasons why none is printed.

What belongs here: options that several verbs share for a scan, formats of a record, the search in keys and values.
What does not: reading records (``tierlog.scan``), or the verb's arguments (``cli.verbs.cat``).
"""
