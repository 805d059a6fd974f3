"""What a user asks of ``spark.read.format("tierlog")``: options read and checked before any store is opened.

What belongs here: the texts of options, to values. What does not: planning and reading.
"""
