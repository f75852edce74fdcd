"""``python -m rolecall`` is the program ``rolecall``."""

import sys

from rolecall.cli.main import main

sys.exit(main())
