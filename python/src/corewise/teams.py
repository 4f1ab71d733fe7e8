"""The libraries of this process that make teams of threads, and how many threads those have."""

import ctypes
import os
import re

# By part of a file's name: getters and setters, and the variables of the environment by which a user chooses.
_OPENBLAS = [
    (f"{prefix}openblas_get_num_threads{suffix}", f"{prefix}openblas_set_num_threads{suffix}")
    for prefix in ("", "scipy_")
    for suffix in ("", "64_", "_64")
]
_OPENMP = [("omp_get_max_threads", "omp_set_num_threads")]
_KINDS = [
    (r"^lib.*openblas", "OpenBLAS", _OPENBLAS, ["OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS"]),
    (r"^libmkl_rt", "MKL", [("MKL_Get_Max_Threads", "MKL_Set_Num_Threads")], ["MKL_NUM_THREADS"]),
    (r"^libblis", "BLIS", [("bli_thread_get_num_threads", "bli_thread_set_num_threads")], ["BLIS_NUM_THREADS"]),
    (r"^libgomp", "OpenMP (GNU)", _OPENMP, []),
    (r"^libi?omp", "OpenMP (LLVM)", _OPENMP, []),
]

# It decides for all of them.
_COMMON = ["OMP_NUM_THREADS", "OMP_THREAD_LIMIT"]


class Team:
    """A library's team."""

    def __init__(self, name, get, set_, variables):
        self.name, self.get, self.set, self._variables = name, get, set_, variables

    def is_free(self, chosen):
        """Whether none of these variables decides about it."""
        return not any(variable in self._variables or variable in _COMMON for variable in chosen)


def wishes(environment):
    """The variables by which the user has chosen sizes."""
    known = _COMMON + [variable for _, _, _, variables in _KINDS for variable in variables]
    return [variable for variable in known if environment.get(variable)]


def loaded():
    """The teams of the libraries that are loaded now."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            paths = {line.split(None, 5)[5].rstrip("\n") for line in maps if line.count("/") and ".so" in line}
    except OSError:
        return []
    teams = []
    for path in sorted(paths):
        for pattern, name, functions, variables in _KINDS:
            if re.search(pattern, os.path.basename(path)):
                team = _team(path, name, functions, variables)
                teams += [team] if team else []
                break
    return teams


def _team(path, name, functions, variables):
    try:
        # What is loaded is not loaded once more, nor anything else by its name.
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None
    for getter, setter in functions:
        if hasattr(library, getter) and hasattr(library, setter):
            get, set_ = getattr(library, getter), getattr(library, setter)
            get.argtypes, get.restype, set_.argtypes, set_.restype = [], ctypes.c_int, [ctypes.c_int], None
            return Team(f"{name} ({os.path.basename(path)})", get, set_, variables)
    return None
