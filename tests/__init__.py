"""Tests mirror the rooms of ``engine/tierlog``; ``support`` builds inputs, ``data`` holds what real systems wrote."""
