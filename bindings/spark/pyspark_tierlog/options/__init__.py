"""The options of ``spark.read.format("tierlog")``, read and checked before any store is opened.

What belongs here: turning option texts into values. What does not: planning and reading.
"""
