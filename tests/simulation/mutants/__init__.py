"""Faults that are planted into the engine, to show that the simulation finds them.

Here belong the planted ones, each an edit of one module's source, the tool that draws automatic ones, and the import
hook by which a process runs an engine with one of them. The engine's files are never changed.
"""
