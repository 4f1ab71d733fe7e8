"""The corewise command beside this process, where it is installed and may look into it."""

import contextlib
import ctypes
import shutil
import subprocess
import time

_PR_SET_PTRACER = 0x59616D61

# How long it may take until it is known whether it works: it ends at once where it may not.
_TRIED_FOR_S = 0.3


@contextlib.contextmanager
def beside(pid):
    """Lets the command make waits of a process short while others need its PEs, until the end of the block. Yields
    whether it does."""
    path = shutil.which("corewise")
    running = _start(path, pid) if path else None
    try:
        yield running is not None
    finally:
        if running is not None:
            # It gives everything back then.
            running.terminate()
            running.wait()


def _start(path, pid):
    command = [path, "run", "--quiet", "--pid", str(pid)]
    # The terminal's Ctrl-C is for this process.
    running = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    _permit(running.pid)
    deadline = time.monotonic() + _TRIED_FOR_S
    while time.monotonic() < deadline:
        if running.poll() is not None:
            return None
        time.sleep(0.02)
    return running


def _permit(pid):
    """Where only ancestors may look into a process (Yama), it can name one more."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)
    except (OSError, AttributeError):
        pass
