"""The fixtures of program.py. Not defined here: another folder's conftest would be imported in its place."""

import signal

from program import *  # noqa: F401,F403

# A shell's background job (`make test &`) has its interrupts ignored, and so has everything that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
