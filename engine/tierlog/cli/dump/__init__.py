"""``tierlog dump``: the walk over logs, indexes and snapshots, and the formats that it prints them in."""
