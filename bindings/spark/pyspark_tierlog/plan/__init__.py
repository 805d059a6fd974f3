"""The planner of Spark's jar: a child process of the driver that lists, plans and answers; docs/plan-protocol.md.

Belongs here: frames, requests, and what they become. Does not belong here: any decision about what is read, which is
the same code as the Python path's; PySpark, which an interpreter that only plans need not have.
"""
