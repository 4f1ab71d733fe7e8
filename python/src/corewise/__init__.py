"""Teams of threads that fit what is free on a machine that several programs share.

    with corewise.shared():
        model.fit(data)
"""

import contextlib
import os

from corewise import command, free, teams

__version__ = "0.2.0"
__all__ = ["shared"]


@contextlib.contextmanager
def shared(use_command=True):
    """Lets the loaded libraries make teams of as many threads as PEs are free, until the end of the block.

    The size is chosen once, when the block begins, and set by the libraries' own functions. Yields what is done, as
    words. With use_command the `corewise` command, where it is installed and may, also makes waits short while others
    need PEs.
    """
    with contextlib.ExitStack() as block:
        done = _limit(block)
        if use_command and block.enter_context(command.beside(os.getpid())):
            done.append("waits: the corewise command")
        yield done


def _limit(block):
    """Makes teams smaller until the end of the block. Returns what is done, as words."""
    wishes = teams.wishes(os.environ)
    free_teams = [team for team in teams.loaded() if team.is_free(wishes)]
    size = free.pes() if free_teams else 1
    done = [f"as {wish} says" for wish in wishes]
    for team in free_teams:
        before = team.get()
        if size < before:
            team.set(size)
            block.callback(_restore, team, size, before)
            done.append(f"{team.name}: {size} of {before} threads")
    return done


def _restore(team, size, before):
    # Another size that was chosen meanwhile stays.
    if team.get() == size:
        team.set(before)
