"""What logs go by: Kafka's configuration keys, checked.

What it is: the tables of a topic's and a broker's keys. Why: who comes from Kafka
writes what she has always written, and a wrong value is told before a log is opened, not while it is appended to.

Belongs here: names, defaults, limits, and reading them from text. Does not belong here: what a log does by them, and
the configurations as values, which are ``log_config`` beside this room and ``directory.directory_config``.
"""
