"""Processes that a training starts beside itself and that read its run like anybody else: the watcher that judges it,
TensorBoard's files, smdebug's layout. The training holds their standard input, and that is all that they have of it:
when it says there that it is over, or is gone, however it went, they do what is left and end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence

FINISH_SECONDS = 60.0           # how long the end of a training waits for them; they go on by themselves afterwards

#: of all runs of this process, let go of and perhaps still at work
_ending: list[subprocess.Popen[bytes]] = []


def environment() -> dict[str, str]:
    """What is launched must not think that it is a training to be watched."""
    return {k: v for k, v in os.environ.items() if k not in ("TDBG_RUN", "TDBG_ATTEMPT")}


class Beside:
    """The processes of one run."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, command: Sequence[str], files: Sequence[int] = ()) -> None:
        """:param files: descriptors that the process may read

        :raises OSError: it cannot be started
        """
        self._processes.append(subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment(), start_new_session=True,
            pass_fds=tuple(files),
        ))

    def let_go(self) -> list[subprocess.Popen[bytes]]:
        """The training is over. That is said, too, because a child of this process that lives on may hold the pipe.

        :return: what `wait` can wait for
        """
        processes, self._processes = self._processes, []
        for process in processes:
            _say_over(process)
        _ending.extend(processes)
        return processes

    def leave(self) -> None:
        """Whether the training is over is for another process to say: the one that this was forked from, or a child."""
        processes, self._processes = self._processes, []
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()


def _say_over(process: subprocess.Popen[bytes]) -> None:
    """It may have ended, and a script may want to die of a pipe without a reader (SIGPIPE, its default action): not of
    this one."""
    assert process.stdin is not None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
    try:
        process.stdin.write(b".")
        process.stdin.close()
    except BrokenPipeError:
        if signal.SIGPIPE not in before:
            signal.sigtimedwait({signal.SIGPIPE}, 0)    # else it would come when the mask is taken away
    except OSError:
        pass
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def wait(processes: list[subprocess.Popen[bytes]] | None = None, seconds: float = FINISH_SECONDS) -> list[int]:
    """Until those that were let go of have ended (default: all of this process's). In a container nothing lives on
    after the training.

    :return: the process numbers of those that are still at work after `seconds`
    """
    processes = list(_ending) if processes is None else processes
    deadline = time.monotonic() + seconds
    late = [process.pid for process in processes if not _ended(process, deadline)]
    _ending[:] = [process for process in _ending if process.returncode is None]
    return late


def _ended(process: subprocess.Popen[bytes], deadline: float) -> bool:
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True
