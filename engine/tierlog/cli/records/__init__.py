"""``tierlog cat``: from the options of a scan to lines of text, and the reasons why no line is printed.

What belongs here: options to a scan request, records to text. What does not: reading them (``tierlog.scan``).
"""
