"""The output of ``tierlog dump``: logs, indexes, snapshots and checkpoints as Kafka's own tool or as JSON prints them.

What belongs here: which files are walked, and the text of a line. What does not: parsing (``tierlog.log.formats``,
``tierlog.records``), or the verb's arguments (``cli.verbs.dump``).
"""
