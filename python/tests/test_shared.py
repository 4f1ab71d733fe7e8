"""python3 -m unittest discover -s python/tests"""

import contextlib
import ctypes
import ctypes.util
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "src"))

import corewise
from corewise import free, teams


class Libraries:
    """A team that is remembered, in place of loaded libraries."""

    def __init__(self, size):
        self.size = size
        self.team = teams.Team("some", lambda: self.size, self.set, ["OPENBLAS_NUM_THREADS"])

    def set(self, size):
        self.size = size


@contextlib.contextmanager
def environment(free_pes, team, **variables):
    names = [*teams.wishes({name: "1" for name in os.environ}), *variables]
    kept = {name: value for name, value in os.environ.items() if name not in names}
    with mock.patch.dict(os.environ, {**kept, **variables}, clear=True):
        with mock.patch.object(teams, "loaded", lambda: [team]), mock.patch.object(free, "pes", lambda: free_pes):
            yield


class Shared(unittest.TestCase):
    def test_teams_fit_within_the_block_and_are_as_before_behind_it(self):
        libraries = Libraries(8)
        with environment(3, libraries.team), self.assertRaises(KeyError):
            with corewise.shared(use_command=False) as done:
                self.assertEqual((libraries.size, done), (3, ["some: 3 of 8 threads"]))
                raise KeyError
        self.assertEqual(libraries.size, 8)

    def test_a_team_is_never_made_larger(self):
        libraries = Libraries(2)
        with environment(3, libraries.team), corewise.shared(use_command=False) as done:
            self.assertEqual((libraries.size, done), (2, []))

    def test_what_the_user_has_chosen_stays_and_is_named(self):
        for variable in "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS":
            libraries = Libraries(8)
            with environment(3, libraries.team, **{variable: "8"}), corewise.shared(use_command=False) as done:
                self.assertEqual((libraries.size, done), (8, [f"as {variable} says"]))

    def test_a_choice_within_the_block_is_kept(self):
        libraries = Libraries(8)
        with environment(3, libraries.team):
            with corewise.shared(use_command=False):
                libraries.size = 5
        self.assertEqual(libraries.size, 5)


class Command(unittest.TestCase):
    def run_with(self, script):
        """Within a block, with this as the corewise command: what was done, and what the command wrote."""
        libraries = Libraries(8)
        with tempfile.TemporaryDirectory() as directory:
            command, log = pathlib.Path(directory, "corewise"), pathlib.Path(directory, "log")
            command.write_text(f"#!/bin/sh\necho $* > {log}.new\nmv {log}.new {log}\n{script}\n")
            command.chmod(command.stat().st_mode | stat.S_IXUSR)
            path = f"{directory}:{os.environ['PATH']}"
            with environment(3, libraries.team, PATH=path), corewise.shared() as done:
                while not log.exists():
                    time.sleep(0.01)
                return done, log.read_text()

    def test_the_command_makes_waits_short_and_never_changes_the_chosen_size(self):
        done, words = self.run_with("exec sleep 1000")
        self.assertEqual(done, ["some: 3 of 8 threads", "waits: the corewise command"])
        self.assertEqual(words, f"run --quiet --pid {os.getpid()}\n")

    def test_where_the_command_may_not_only_the_size_is_chosen(self):
        done, _ = self.run_with("exit 125")
        self.assertEqual(done, ["some: 3 of 8 threads"])


class Free(unittest.TestCase):
    def test_what_others_and_a_quota_take_is_not_free(self):
        for allowed, quota, others, expected in [
            (8, None, 0.0, 8),
            (8, None, 2.1, 6),
            (8, None, 2.3, 5),
            (8, 3.5, 0.0, 4),
            (8, 0.5, 0.0, 1),
            (8, 6.0, 7.9, 1),
            (2, None, 9.0, 1),
        ]:
            self.assertEqual(free.free_of(allowed, quota, others), expected, (allowed, quota, others))

    def test_the_tightest_quota_of_a_control_group_counts(self):
        with tempfile.TemporaryDirectory() as root:
            def write(path, text):
                file = pathlib.Path(root, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)

            self.assertIsNone(free.quota(root))
            write("proc/self/cgroup", "0::/a/b\n")
            write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
            self.assertIsNone(free.quota(root))
            write("sys/fs/cgroup/a/cpu.max", "150000 100000\n")
            self.assertEqual(free.quota(root), 1.5)
            write("proc/self/cgroup", "3:cpu,cpuacct:/c\n1:name=systemd:/\n")
            write("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n")
            write("sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n")
            self.assertIsNone(free.quota(root))
            write("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "50000\n")
            self.assertEqual(free.quota(root), 0.5)

    def test_what_another_process_uses_is_seen(self):
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            used = 0.0
            deadline = time.monotonic() + 60
            while used < 0.5 and time.monotonic() < deadline:
                used = free.others()
            self.assertGreaterEqual(used, 0.5)
        finally:
            busy.kill()
            busy.wait()


class Loaded(unittest.TestCase):
    def test_the_team_of_a_real_library_is_found_and_set(self):
        path = ctypes.util.find_library("gomp")
        if path is None:
            self.skipTest("there is no libgomp")
        ctypes.CDLL(path)
        team = next(team for team in teams.loaded() if team.name.startswith("OpenMP (GNU)"))
        before = team.get()
        team.set(before + 1)
        self.assertEqual(team.get(), before + 1)
        team.set(before)


if __name__ == "__main__":
    unittest.main()
