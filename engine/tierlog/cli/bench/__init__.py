"""``tierlog bench``: made data, the machine's limits, and the timing of our calls against them.

What belongs here: what the verb measures and how its ratios are made. What does not: suites against peers (``bench/``).
"""
