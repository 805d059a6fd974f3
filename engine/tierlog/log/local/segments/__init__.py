"""One segment on disk, and the row of them that is a log.

What it is: a ``.log`` with its indexes: appended to, read, cut, recovered, renamed away. Belongs here: whatever touches a
segment's files. Does not belong here: rules about producers, epochs, retention; several logs.
"""
