"""Verification that stored segments are whole and consistent.

What belongs here: checks of every CRC, index entry, size, offset, epoch and producer. What does not: repair
(``upkeep.exporting`` builds missing files).
"""
