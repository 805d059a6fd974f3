"""The measuring behind ``tierlog bench``: generated data, what the machine can do at best, our calls timed against it.

What belongs here: data to measure with, limits of disk, memory and store, rounds and medians. What does not: the verb's
arguments (``cli.verbs.bench``), or comparisons with other programs (the repository's ``bench`` folder).
"""
