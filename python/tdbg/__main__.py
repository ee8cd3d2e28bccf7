"""`tdbg` and `python -m tdbg`: hands over to the program of the same name that the wheel carries."""

import os
import sys


def program():
    """Path of the command-line program: $TDBG_CLI, else the one in this package."""
    return os.environ.get("TDBG_CLI") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "tdbg")


def main():
    path = program()
    try:
        os.execv(path, ["tdbg", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"tdbg: cannot start {path}: {error.strerror}; reinstall the tdbg wheel, or point TDBG_CLI at the program")


if __name__ == "__main__":
    main()
