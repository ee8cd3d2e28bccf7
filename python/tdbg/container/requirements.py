"""The packages that a job's code asks for, in an environment of the job's own.

    python requirements.py CODE ENVIRONMENT [PIP-OPTION...]

Started by ``tdbg serve`` (src/service/helpers.h) with the Python that stands for the job's image, by path: it imports
nothing but the standard library, and runs on whatever Python an image stands for.
"""

import os
import subprocess
import sys
import venv


def places() -> "list[str]":
    """Where this Python has its packages."""
    return [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]


def create(environment: str) -> str:
    """Make an environment that has all that this Python has, and return its interpreter.

    ``--system-site-packages`` would not do: of an environment it shows what its *base* has. A ``.pth`` file names this
    one's folders behind the new one's own, so pip finds there what is installed already, and cannot take it away.
    """
    venv.EnvBuilder(symlinks=True, with_pip=False).create(environment)
    python = os.path.join(environment, "bin", "python")
    own = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                         stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    with open(os.path.join(own, "of_the_image.pth"), "w") as file:
        for place in places():
            file.write(f"import site; site.addsitedir({place!r})\n")
    return python


def main(words: "list[str]") -> int:
    """Create the environment, and become the pip that fills it. Returns only where there is no pip."""
    code, environment, options = words[0], words[1], words[2:]
    python = create(environment)
    if subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode != 0:
        if subprocess.run([python, "-m", "ensurepip"], stdout=subprocess.DEVNULL).returncode != 0:
            print(f"{sys.executable} has no pip, and its ensurepip cannot make one", file=sys.stderr)
            return 1
    # From the code's folder: a line may name a file of the code. Nobody is there to type a password.
    os.chdir(code)
    # In this process's place: whoever started it ends pip with it.
    os.execv(python, [python, "-m", "pip", "--no-input", "--disable-pip-version-check", "install", "--quiet",
                      *options, "-r", "requirements.txt"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
