"""A test file holds one noun of a room of ``engine/tierlog`` to its word;
``support`` builds inputs, ``data`` holds what real systems wrote.
"""
