"""``tierlog bench``: made data, the machine's limits, and the timing of our calls against them."""
