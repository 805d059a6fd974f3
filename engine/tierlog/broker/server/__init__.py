"""Connections of clients, on an event loop: accepting, limits, TLS, SASL, one request after another, the end.

What belongs here: all that knows sockets. Why: handlers answer values and never see a connection. What does not: what
an API answers, but for those about the connection itself (ApiVersions, SaslHandshake, SaslAuthenticate).

Nothing here reads a disk or asks a store; nothing here decodes records.
"""
