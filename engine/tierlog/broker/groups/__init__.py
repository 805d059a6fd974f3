"""Consumer groups: members, rebalances and committed offsets.

What belongs here: the group coordinator of the classic protocol, its handlers, and the store of its state. Why:
offsets of a server's readers live with it. What does not: partitions and their bytes.

A commit is durable before its answer.
"""
