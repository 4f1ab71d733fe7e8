"""Two versions of corewise, compared: every measurement is made with both, one right after the other."""

import dataclasses
import importlib.machinery
import importlib.util
import os
import random
import statistics
import sys
import time
from collections.abc import Callable

HERE = os.path.dirname(os.path.abspath(__file__))


def load(name):
    """A script of this folder, as a module."""
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(HERE, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


@dataclasses.dataclass
class Case:
    """What is measured: `value` of a version, which is smaller where that version is better."""

    name: str
    value: Callable[[str], float]
    unit: str = "s"
    rounds_max: int = sys.maxsize


@dataclasses.dataclass
class Versions:
    """The executables by version, each with a runtime directory of its own, so that none reads another's files."""

    old: str
    new: str
    directory: str

    def binary(self, version):
        return os.path.abspath(getattr(self, version))

    def environment(self, version):
        runtime = os.path.join(self.directory, version)
        os.makedirs(runtime, mode=0o700, exist_ok=True)
        return {"XDG_RUNTIME_DIR": runtime}

    def add_to(self, measure):
        """Makes both of them variants of `measure`."""
        for version in ("old", "new"):
            command = [self.binary(version), "run", "--quiet", "--"]
            measure.VARIANTS[version] = (command, self.environment(version))


def compare(cases, rounds, seed):
    """Measures all cases in each round, in random order, and prints a line for each at the end."""
    chance, began = random.Random(seed), time.monotonic()
    values = {case.name: {"old": [], "new": []} for case in cases}
    for index in range(rounds):
        due = [case for case in cases if index < case.rounds_max]
        for case in chance.sample(due, len(due)):
            for version in chance.sample(["old", "new"], 2):
                values[case.name][version].append(case.value(version))
        print(f"round {index + 1} of {rounds}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    tell(cases, values)


def tell(cases, values):
    width = max(len(case.name) for case in cases)
    print(f"{'':{width}} {'old':>10} {'new':>10}  new / old (range)")
    ratios, slower = {}, []
    for case in cases:
        old, new = values[case.name]["old"], values[case.name]["new"]
        of_rounds = [after / before for before, after in zip(old, new)]
        ratio = ratios[case.name] = statistics.median(of_rounds)
        range_ = f"({min(of_rounds):.2f} to {max(of_rounds):.2f})"
        medians = [f"{statistics.median(of):.3f} {case.unit}" for of in (old, new)]
        print(f"{case.name:{width}} {medians[0]:>10} {medians[1]:>10}  {ratio:.2f} {range_}")
        if ratio > 1.1 and min(new) > max(old):
            slower.append(f"{case.name} ({ratio:.2f})")
    print(f"geometric mean of {len(ratios)} ratios: {statistics.geometric_mean(ratios.values()):.3f}")
    print(f"more than 10 % slower, and every new value above every old one: {', '.join(slower) or 'none'}")
