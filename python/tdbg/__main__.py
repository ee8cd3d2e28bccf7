"""`tdbg` and `python -m tdbg`: hands over to the program of the same name that the wheel carries."""

from __future__ import annotations

import os
import signal
import sys

from .program import program

_MISSING = 6    # docs/cli.md; 1 would be a rule that found issues


def main() -> None:
    """Becomes the program; exits with 6 where there is none."""
    path = program()
    # Python ignores it, and the program would inherit that: `| head` is no error.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execv(path, ["tdbg", *sys.argv[1:]])
    except OSError as error:
        sys.stderr.write(f"tdbg: cannot start {path}: {error.strerror}; reinstall the tdbg wheel (a source tree on "
                         "PYTHONPATH comes before it), or point TDBG_CLI at the program\n")
        sys.exit(_MISSING)


if __name__ == "__main__":
    main()
