"""The peers that benchmarks run beside: a real Kafka broker, its Java record iterator, Spark's own Kafka source.

Bench-time installs only (Maven, PyPI); nothing here is imported by the package.
"""
