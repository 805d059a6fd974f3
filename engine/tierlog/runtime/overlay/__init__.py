"""Changes over a file system that stay in memory: a dry run does all that the run does, and leaves no trace.

What belongs here: ``OverlayFiles``, for which everything below ``Files`` is real, and read only. What does not: files
that a test makes up (``runtime.simulated``).
"""
