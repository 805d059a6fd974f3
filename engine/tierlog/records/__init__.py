"""Record batches: their headers as numpy columns, their records as Arrow, and the writing of them.

What belongs here: reading and building of Kafka's batches of all three magics, given as bytes. What does not: files
and stores (nothing here opens any), the indexes beside a log (``tierlog.log``), which batches a user wants
(``tierlog.remote``). No record becomes a Python object but in the oracle (``_reference``), which is for tests.
"""
