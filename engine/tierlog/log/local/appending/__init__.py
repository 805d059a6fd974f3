"""What comes into a log: checked, given its offsets, and compressed anew where the topic has a codec of its own.

Belongs here: rules about the bytes of one append, whoever sent them. Does not belong here: producers' sequences and
transactions (``producers``), files (``segments``).
"""
