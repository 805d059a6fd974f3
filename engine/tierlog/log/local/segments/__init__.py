"""One segment on disk, and the row of them that makes a log.

Belongs here: whatever touches a segment's files: appending, reading, cutting, renaming away. Does not belong here:
rules about producers, epochs and retention; several logs.
"""
