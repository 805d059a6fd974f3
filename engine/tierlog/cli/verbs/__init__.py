"""The verbs of the command: one module a verb, with a function of its name.

What belongs here: the arguments of a verb, what it calls, and its exit code. What does not: how lines are laid out
(``cli.records``, ``cli.dump``), or work that a program without a terminal would want too (the engine below ``cli``).
"""
