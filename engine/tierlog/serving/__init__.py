"""Framed connections on an event loop: accepting, limits, memory, deadlines, TLS, one request after another, the end.

What belongs here: all that knows sockets, whatever the requests mean; metrics and health checks over HTTP; the life of
a server as a process. Why: Kafka's server stands on it, and a sidecar will. What does not: a protocol. ``FramedServer``
gets a function that makes a client of an accepted connection, and another that answers a frame.

Nothing here reads a disk or asks a store on the loop's thread.
"""
