"""The planner of Spark's jar: a child process of the driver that lists, plans and answers; docs/plan-protocol.md.

Belongs here: frames, requests, and their answers. Does not belong here: decisions about the records to read, which the
code of the Python path makes; PySpark, which an interpreter that only plans need not have.
"""
