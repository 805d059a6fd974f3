"""The peers that benchmarks and interop tests run beside: a real Kafka broker, its Java record iterator, its tools and
Connect, Spark's own Kafka source.

Installs of benchmarks and tests only (Maven, PyPI); nothing here is imported by the package.
"""
