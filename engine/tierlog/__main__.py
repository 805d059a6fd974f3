"""``python -m tierlog``: the command, where no script of that name is on the path."""

from tierlog.cli import main

main()
