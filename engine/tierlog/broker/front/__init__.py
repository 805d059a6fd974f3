"""The front of a live cluster: its clients connect to it alone, and each of their connections goes on to one broker.

What belongs here: what lies between a client's connection and the broker's, frames that pass as bytes, the endpoints
in answers, and questions of the front's own. Why: a cluster and its clients stay as they are. What does not: sockets
(``tierlog.serving``), APIs whose answers are the bucket's, and how a bucket is read (``broker.replica``).
"""
