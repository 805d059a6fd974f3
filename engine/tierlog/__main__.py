"""``python -m tierlog``: the command, for environments whose ``PATH`` has no ``tierlog`` script."""

from tierlog.cli import main

main()
