"""Teams of threads that fit what is free on a machine that several programs share.

    with corewise.shared():
        model.fit(data)
"""

import contextlib
import os

from corewise import command, free, teams

__version__ = "0.1.0"
__all__ = ["shared"]


@contextlib.contextmanager
def shared(use_command=True):
    """Lets the loaded libraries make teams of as many threads as PEs are free, until the end of the block.

    Yields what is done, as words: by whom, and which library has how many threads. With use_command the `corewise`
    command does it where it is installed and may; it follows what happens.
    """
    wishes = teams.wishes(os.environ)
    if use_command and not wishes:
        with command.beside(os.getpid()) as is_there:
            if is_there:
                yield ["the corewise command"]
                return
    chosen = teams.loaded()
    size = free.pes() if chosen else 1
    changed = []
    try:
        for team in chosen:
            before = team.get()
            if team.is_free(wishes) and size < before:
                team.set(size)
                changed.append((team, before))
        told = [f"{team.name}: {size} of {before} threads" for team, before in changed]
        yield told + [f"as {wish} says" for wish in wishes]
    finally:
        for team, before in changed:
            # Who has chosen another size meanwhile keeps it.
            if team.get() == size:
                team.set(before)
