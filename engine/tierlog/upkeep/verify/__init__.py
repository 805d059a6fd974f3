"""Whether what is stored is whole and agrees with itself.

What belongs here: checks of every CRC, index entry, size, offset, epoch and producer. What does not: mending what is
found (``upkeep.export`` builds what is missing).
"""
