"""The speed of reading against this machine's limits, which ``tierlog bench`` measures.

What belongs here: data to measure with, limits of disk, memory and store, rounds and medians. What does not: arguments
and printing (``cli``), or comparisons with other programs (the repository's ``bench`` folder).
"""
