"""`tdbg` and `python -m tdbg`: hands over to the program of the same name that the wheel carries."""

import os
import signal
import sys

_MISSING = 6    # docs/cli.md; 1 would be a rule that found issues


def program():
    """Path of the command-line program: $TDBG_CLI, else the one in this package."""
    return os.environ.get("TDBG_CLI") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "tdbg")


def main():
    path = program()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)   # Python ignores it, the program would inherit that: `| head` is no error
    try:
        os.execv(path, ["tdbg", *sys.argv[1:]])
    except OSError as error:
        sys.stderr.write(f"tdbg: cannot start {path}: {error.strerror}; reinstall the tdbg wheel (a source tree on PYTHONPATH "
                         "comes before it), or point TDBG_CLI at the program\n")
        sys.exit(_MISSING)


if __name__ == "__main__":
    main()
