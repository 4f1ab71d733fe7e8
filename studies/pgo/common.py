"""Fetching sources, running commands, and the figures of `corewise compare`."""

import json
import math
import os
import re
import shutil
import subprocess
import sys

import programs

ROOT = os.path.dirname(programs.STUDIES)
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
COREWISE = os.environ.get("COREWISE", os.path.join(TARGET, "release", "corewise"))
WORK = os.environ.get("WORK", os.path.join(TARGET, "pgo"))
LLVM = "/usr/lib/llvm-19/bin"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Failed(Exception):
    pass


def path(*parts):
    return os.path.join(WORK, *parts)


def run(command, **options):
    """Runs a command, a list or a line for the shell; returns its output."""
    options.setdefault("stdin", subprocess.DEVNULL)
    result = subprocess.run(command, shell=isinstance(command, str), capture_output=True, text=True,
                            errors="replace", **options)
    if result.returncode:
        raise Failed(f"{command}\n{result.stdout[-1500:]}{result.stderr[-1500:]}")
    return result.stdout


def debian(package, suite, directory):
    """Unpacks the upstream source of a Debian package; its own package lists leave the machine's unchanged."""
    lists, packages = path("apt", suite), path("packages", f"{suite}-{package}")
    apt = ["apt-get", "-o", f"Dir::Etc::SourceList={lists}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
           "-o", f"Dir::State::Lists={lists}/lists"]
    if not os.path.isdir(lists):
        os.makedirs(f"{lists}/lists/partial")
        with open(f"{lists}/sources.list", "w") as file:
            file.write(f"deb-src [signed-by={KEYS}] http://deb.debian.org/debian {suite} main\n")
        run(apt + ["update"])
    os.makedirs(packages, exist_ok=True)
    try:
        run(apt + ["source", "--download-only", package], cwd=packages)
        failure = None
    except Failed as error:
        # Debian's own files are not needed.
        failure = error
    archives = [name for name in sorted(os.listdir(packages)) if re.search(r"\.orig\.tar\.[a-z0-9]+$", name)]
    if not archives:
        raise failure or Failed(f"{package} has no upstream source")
    archive = archives[0]
    run(["tar", "xf", os.path.join(packages, archive), "-C", directory])


def go_module(module, directory):
    found = json.loads(run(["go", "mod", "download", "-json", module], cwd="/"))
    run(["cp", "-r", "--no-preserve=mode", found["Dir"] + "/.", directory])
    run(["go", "mod", "download"], cwd=directory)


def crate(name, version, directory):
    """Cargo unpacks what a package depends on; the program is copied from there."""
    dummy = path("packages", f"crate-{name}")
    os.makedirs(f"{dummy}/src", exist_ok=True)
    open(f"{dummy}/src/main.rs", "w").write("fn main() {}")
    open(f"{dummy}/Cargo.toml", "w").write(
        f'[package]\nname = "fetch"\nversion = "0.0.0"\n[dependencies]\n{name} = "={version}"\n[workspace]\n')
    run(["cargo", "fetch"], cwd=dummy)
    registry = os.path.join(os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo")), "registry", "src")
    found = next(folder for folder in os.listdir(registry) if os.path.isdir(f"{registry}/{folder}/{name}-{version}"))
    shutil.copytree(f"{registry}/{found}/{name}-{version}", directory, dirs_exist_ok=True)
    # The tree may lie within that of another workspace.
    open(f"{directory}/Cargo.toml", "a").write("\n[workspace]\n")
    run(["cargo", "fetch"], cwd=directory)


def folder(program):
    """The name of a program's folders."""
    return program.name.replace(" (", "-").rstrip(")")


def source(program):
    return path("src", folder(program))


def fetch(program, suite="bookworm", directory=None):
    """Fetches the source of a program, unless it is there."""
    directory = directory or source(program)
    if os.path.isdir(directory):
        return
    new = directory + ".new"
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(new)
    kind, _, rest = program.source.partition(":")
    if kind == "go":
        go_module(rest, new)
    elif kind == "crate":
        crate(*rest.split("@"), new)
    else:
        debian(program.source, suite, new)
    inside = os.listdir(new)
    if len(inside) == 1:
        os.rename(os.path.join(new, inside[0]), directory)
        os.rmdir(new)
    else:
        os.rename(new, directory)
    if program.prepare:
        run(program.prepare, cwd=directory)


def environment(program):
    return {**os.environ, **program.environment}


def chosen(only, default=None):
    """The programs of these names, with commas between them."""
    names = (only or default or ",".join(program.name for program in programs.PROGRAMS)).split(",")
    return [program for program in programs.PROGRAMS if program.name in names or folder(program) in names]


def prepared(wanted):
    """Fetches the programs, and all whose sources are inputs; writes the inputs."""
    for program in programs.PROGRAMS:
        if program in wanted or program.name in ("lua", "sqlite", "duktape"):
            try:
                fetch(program)
            except (Failed, OSError, StopIteration) as error:
                print(f"{program.name}: not fetched: {error}", flush=True)
    if not os.path.exists(path("data.txt")):
        programs.inputs(WORK)
    return [program for program in wanted if os.path.isdir(source(program))]


def build_command(program, profile_options="", linker_options=""):
    """The command with which corewise builds the baseline, with further options."""
    words = {word: f"{word} {profile_options}" for word in ("{flags}", "{gccflags}", "{goflags}", "{rustflags}")}
    words["{ldflags}"] = "{ldflags} " + linker_options
    build = program.build
    for word, replacement in words.items():
        build = build.replace(word, replacement.rstrip())
    script = run([COREWISE, "pgo", "--dry-run", "--build", build, "--run", f"./{program.binary} x"],
                 env=environment(program), cwd=source(program))
    return re.search(r"\n# The baseline[^\n]*\n(.*?)\ncp ", script, re.S)[1]


def built(program, command, to, directory=None):
    """Builds a program and copies it."""
    directory = directory or source(program)
    run(command, cwd=directory, env=environment(program))
    os.makedirs(os.path.dirname(to), exist_ok=True)
    shutil.copy(os.path.join(directory, program.binary), to)


def compare(variants, workload, rounds, to, directory):
    """Runs `corewise compare`; `variants` are files by name, the first is the baseline."""
    words = [COREWISE, "compare", "--runs", str(rounds), "--same-output", f"--json={to}",
             "--baseline", next(iter(variants))]
    for name, binary in variants.items():
        words += ["--variant", f"{name}={binary}"]
    line = " ".join(f"'{word}'" for word in words)
    run(f"rm -f '{to}'; {line} -- {workload}", cwd=directory)


class Times:
    """A variant's median CPU time, and its gain in CPU time over the baseline with the 95 % interval, in percent."""

    def __init__(self, result):
        self.seconds = result["figures"]["cpu"]["median"]
        effect = result["effects"].get("cpu")
        self.has_gain = effect is not None
        effect = effect or {"ratio": 1, "low": 1, "high": 1}
        # The lowest ratio of times is the highest gain.
        self.gain, self.low, self.high = (100 / effect[end] - 100 for end in ("ratio", "high", "low"))

    def __str__(self):
        return f"{self.gain:+.1f} % [{self.low:+.1f}, {self.high:+.1f}]"


def times(file):
    """The variants of a comparison by name."""
    return {result["name"]: Times(result) for result in json.load(open(file))["results"]}


def mean(gains):
    """The geometric mean of gains in percent."""
    return 100 * math.expm1(sum(math.log1p(gain / 100) for gain in gains) / len(gains))


def main_of(function):
    """Runs a script; a command that fails ends it with what that command printed."""
    try:
        function()
    except Failed as error:
        sys.exit(f"failed: {error}")
