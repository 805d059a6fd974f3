"""``python -m pyspark_tierlog.plan``."""

from __future__ import annotations

import sys

from pyspark_tierlog.plan.process import main

if __name__ == "__main__":
    sys.exit(main())
