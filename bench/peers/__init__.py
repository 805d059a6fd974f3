"""The sides of benchmarks that run in a process of their own, and what fills a broker's topics for them."""
