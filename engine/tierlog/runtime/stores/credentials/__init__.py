"""The sources of AWS's and Google's credentials: one for reading and writing, never silently another.

What belongs here: finding them, and renewing those that expire. What does not: signing with them.
"""
