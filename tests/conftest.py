"""For all suites: what a training records does not depend on how fast the machine is, or on what else it does."""

import os

#: Tests of the budget itself take this away, or set another.
os.environ.setdefault("TDBG_OVERHEAD", "none")
