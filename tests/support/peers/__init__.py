"""The peers that tests and benchmarks run beside: a real Kafka broker, its Java classes, its tools and Connect,
Spark's own Kafka source, the Aiven plugin.

Installs of tests and benchmarks only (Maven, PyPI); the package imports nothing here.
"""
