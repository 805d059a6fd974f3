"""Kafka's half of a server: from a frame to a handler of its API, and back; ApiVersions and SASL.

What belongs here: code that depends on Kafka's protocol and not on an API. Why: handlers answer values and never see a
connection; connections (``tierlog.serving``) know no protocol. What does not: the answers of APIs, but for those about
the connection itself (ApiVersions, SaslHandshake, SaslAuthenticate).
"""
