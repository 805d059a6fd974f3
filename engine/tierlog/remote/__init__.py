"""The remote half of a log (KIP-405): the KIP's interfaces, values and errors; rooms that store, order and read it.

What belongs here: ``api`` (the KIP's nouns, no behaviour), ``storage`` (one tier: segments and their bytes),
``metadata`` (which segments make up a partition) and ``manager`` (what a caller asks for, as ranges and Arrow).
What does not: Kafka's files (``tierlog.log``), record batches (``tierlog.records``), files and sockets
(``tierlog.runtime``).
"""
