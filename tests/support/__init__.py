"""Helpers of the tests: builders of synthetic data. Nothing here is a test, and nothing here imitates a store."""
