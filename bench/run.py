"""The benchmark: ``make bench``, or ``python bench/run.py --quick`` for two minutes instead of ten.

It starts its own control plane, measures one subject after the other (how fast the operator is ready, what idle
objects cost, how soon a change reaches a play, how rolecall compares with others) and prints a report as Markdown to
standard output; progress goes to standard error. A missed goal is reported, but isn't a failure: the exit code is 0
whenever everything could be measured. The README next to it explains the numbers.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    # Started by its path, Python looks for modules in this directory only, not in the one above.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(import_module("bench.suite").main())
