#!/usr/bin/env python3
"""What rebuilding programs from corewise's profiles gains: profile, rebuild, measure interleaved.

    studies/paths/rebuild/rebuild.py prepare           fetch the sources and build them without a profile (15 min)
    studies/paths/rebuild/rebuild.py profile           record, and build every variant (15 min)
    studies/paths/rebuild/rebuild.py measure [-n N]    N interleaved rounds (default 20; 12 min), then the table
    studies/paths/rebuild/rebuild.py table             the table again

Options: `--only lua,sqlite` (programs), `--backend shadow|step|lbr`, `--rate HZ`, `--branches N`. Everything lies
in target/rebuild. Needs a Debian 12 with clang-19, llvm-19, lld-19, bolt-19, libclang-rt-19-dev, tclsh, make, dpkg-dev and
`cargo build --release -p corewise-cli`. See README.md.
"""

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys

import programs

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(programs.HERE)))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
COREWISE = os.environ.get("COREWISE", os.path.join(TARGET, "release", "corewise"))
WORK = os.environ.get("WORK", os.path.join(TARGET, "rebuild"))
LLVM = "/usr/lib/llvm-19/bin"
# A profile is matched by lines, discriminators and names of static functions; BOLT needs relocations.
FLAGS = ["-g", "-fdebug-info-for-profiling", "-funique-internal-linkage-names", "-fno-plt", "-w"]
LINK = ["-fuse-ld=lld", "-Wl,--emit-relocs", "-Wl,--build-id"]
BOLT = ["-reorder-blocks=ext-tsp", "-reorder-functions=cdsort", "-split-functions", "-split-all-cold", "-split-eh",
        "-icf=1"]
# How long the training workload is recorded.
SECONDS = 20
VARIANTS = ["O2", "O3", "sample PGO", "instrumentation PGO", "BOLT", "BOLT, plain samples"]


def run(command, **options):
    """Runs a command; its output if it fails."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace", **options)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nfailed: {result.stdout[-3000:]}{result.stderr[-3000:]}")
    return result.stdout


def path(*parts):
    return os.path.join(WORK, *parts)


def binary(program, variant):
    return path("bin", f"{program.name}-{variant.replace(', ', '-').replace(' ', '-')}")


def fetch(program):
    """Debian's source, with its own package lists, so that the machine's stay unchanged."""
    source = path("src", program.name)
    if os.path.isdir(source):
        return
    lists, directory = path("apt"), path("packages", program.name)
    os.makedirs(os.path.join(lists, "lists", "partial"), exist_ok=True)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(lists, "sources.list"), "w") as file:
        file.write("deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
                   "http://deb.debian.org/debian bookworm main\n")
    apt = ["apt-get", "-o", f"Dir::Etc::SourceList={lists}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
           "-o", f"Dir::State::Lists={lists}/lists"]
    if not any(name.endswith("Sources.lz4") or "Sources" in name for name in os.listdir(os.path.join(lists, "lists"))):
        run(apt + ["update"])
    run(apt + ["source", "--download-only", program.package], cwd=directory)
    archives = [name for name in os.listdir(directory) if ".orig.tar." in name and not name.endswith(".asc")]
    os.makedirs(source + ".new")
    run(["tar", "xf", os.path.join(directory, archives[0]), "-C", source + ".new"])
    inside = os.listdir(source + ".new")
    if len(inside) == 1:
        os.rename(os.path.join(source + ".new", inside[0]), source)
        os.rmdir(source + ".new")
    else:
        os.rename(source + ".new", source)
    if program.prepare:
        run(["sh", "-c", program.prepare], cwd=source)


def build(program, variant, level="-O2", flags=()):
    """One call of the compiler, so that all variants are built alike."""
    out = binary(program, variant)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    source = path("src", program.name)
    run(["clang-19", level, *FLAGS, *flags, *program.flags, *program.sources, "-o", out, *LINK, *program.libraries],
        cwd=source)
    return out


def record(program, options):
    """Profiles the plain build with the training workload, over and over."""
    out = path("profiles", program.name)
    os.makedirs(out, exist_ok=True)
    plain = binary(program, "O2")
    words = " ".join(f"'{word}'" for word in programs.command(program.train, plain, WORK))
    script = f"end=$(($(date +%s) + {SECONDS})); while [ $(date +%s) -lt $end ]; do {words} >/dev/null; done"
    run([COREWISE, "paths", "record", "--quiet", "--backend", options.backend, "--rate", options.rate, "--branches",
         options.branches, "-o", f"{out}/recording", "--", "sh", "-c", script], stdin=subprocess.DEVNULL)
    report = json.loads(run([COREWISE, "paths", "report", "--json", f"{out}/recording"]))
    print(f"{program.name}: {report['windows']} windows, {report['notes']}", flush=True)
    for form in ("llvm-profgen", "bolt"):
        run([COREWISE, "paths", "export", f"{out}/recording", "--format", form, "--module", plain, "-o",
             f"{out}/{form}"])
    run([f"{LLVM}/llvm-profgen", f"--binary={plain}", f"--unsymbolized-profile={out}/llvm-profgen", "--use-offset=0",
         f"--output={out}/sample.prof"])
    run([f"{LLVM}/perf2bolt", plain, "-pa", "-p", f"{out}/bolt", "-o", f"{out}/bolt.fdata"])
    plain_samples(program, f"{out}/recording", f"{out}/plain.fdata")


def plain_samples(program, recording, out):
    """What a profiler without branch records would have had: where the windows start, in BOLT's format."""
    import gzip
    found = json.load(gzip.open(recording))
    plain = binary(program, "O2")
    module = next(i for i, module in enumerate(found["modules"]) if module["path"] == os.path.realpath(plain))
    symbols = []
    for line in run([f"{LLVM}/llvm-nm", "-n", "--defined-only", plain]).splitlines():
        address, kind, name = line.split(maxsplit=2)
        if kind in "tT":
            symbols.append((int(address, 16), name + ("/1" if kind == "t" else "")))
    counts = {}
    for window in found["windows"]:
        start = window["start"]
        before = [symbol for symbol in symbols if symbol[0] <= start["address"]]
        if start["module"] == module and before:
            key = before[-1][1], start["address"] - before[-1][0]
            counts[key] = counts.get(key, 0) + 1
    with open(out, "w") as file:
        file.write("no_lbr cpu-clock\n")
        for (name, offset), count in sorted(counts.items()):
            file.write(f"1 {name} {offset:x} {count}\n")


def instrument(program):
    """Compiler instrumentation, with the same training workload, once."""
    out = path("profiles", program.name)
    counting = build(program, "counting", flags=[f"-fprofile-generate={out}/raw"])
    shutil.rmtree(f"{out}/raw", ignore_errors=True)
    run(programs.command(program.train, counting, WORK), stdin=subprocess.DEVNULL)
    run([f"{LLVM}/llvm-profdata", "merge", "-o", f"{out}/instr.prof", f"{out}/raw"])


def variants(program):
    """Everything that a profile is needed for."""
    out = path("profiles", program.name)
    build(program, "sample PGO", flags=[f"-fprofile-sample-use={out}/sample.prof"])
    build(program, "instrumentation PGO", flags=[f"-fprofile-use={out}/instr.prof"])
    plain = binary(program, "O2")
    for variant, data in (("BOLT", "bolt.fdata"), ("BOLT, plain samples", "plain.fdata")):
        run([f"{LLVM}/llvm-bolt", plain, "-o", binary(program, variant), f"-data={out}/{data}", *BOLT])


def timed(program, variant):
    """User CPU seconds of the workload, which must print what it always prints."""
    words = programs.command(program.measure, binary(program, variant), WORK)
    with open(path("output"), "wb") as output:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = status
    if status:
        sys.exit(f"{' '.join(words)} failed with status {status}")
    return usage.ru_utime, open(path("output"), "rb").read()


def measure(chosen, rounds):
    """Rounds over all programs and variants, the variants of a program one behind the other in random order."""
    times = {program.name: {variant: [] for variant in VARIANTS} for program in chosen}
    expected = {}
    order = random.Random(1)
    for program in chosen:
        for variant in VARIANTS:
            expected.setdefault(program.name, timed(program, variant)[1])
    for number in range(rounds):
        for program in chosen:
            for variant in order.sample(VARIANTS, len(VARIANTS)):
                seconds, output = timed(program, variant)
                if output != expected[program.name]:
                    sys.exit(f"{program.name}, {variant}: the output differs")
                times[program.name][variant].append(seconds)
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        with open(path("times.json"), "w") as file:
            json.dump(times, file)


# Student's t for 95 %, two-sided, by degrees of freedom.
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 7: 2.36, 9: 2.26, 14: 2.14, 19: 2.09, 29: 2.05, 1000: 1.96}


def speedup(before, after):
    """Mean ratio of the times of the same rounds, and its 95 % interval, in percent."""
    logs = [math.log(a / b) for a, b in zip(before, after)]
    mean = statistics.mean(logs)
    if len(logs) < 2:
        return 100 * math.expm1(mean), math.nan, math.nan
    t = T95[max(freedom for freedom in T95 if freedom <= len(logs) - 1)]
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return tuple(100 * math.expm1(value) for value in (mean, mean - half, mean + half))


def table():
    """The speedups over -O2, as Markdown."""
    times = json.load(open(path("times.json")))
    rounds = len(next(iter(times.values()))["O2"])
    print(f"Measured: speedup over -O2 in user CPU time, {rounds} interleaved rounds, 95 % intervals.\n")
    print("| program | -O2, s | " + " | ".join(VARIANTS[1:]) + " |")
    print("| --- " * (len(VARIANTS) + 1) + "|")
    ratios = {variant: [] for variant in VARIANTS[1:]}
    for name, of in times.items():
        cells = [name, f"{statistics.median(of['O2']):.2f}"]
        for variant in VARIANTS[1:]:
            mean, low, high = speedup(of["O2"], of[variant])
            ratios[variant].append(math.log1p(mean / 100))
            cells.append(f"{mean:+.1f} % [{low:+.1f}, {high:+.1f}]")
        print("| " + " | ".join(cells) + " |")
    means = [f"{100 * math.expm1(statistics.mean(ratios[variant])):+.1f} %" for variant in VARIANTS[1:]]
    print("| geometric mean |  | " + " | ".join(means) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["prepare", "profile", "measure", "table"])
    parser.add_argument("-n", type=int, default=20, help="rounds")
    parser.add_argument("--only", help="programs, with commas")
    parser.add_argument("--backend", default="shadow")
    parser.add_argument("--rate", default="500")
    parser.add_argument("--branches", default="32")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else [program.name for program in programs.PROGRAMS]
    chosen = [program for program in programs.PROGRAMS if program.name in wanted]
    if options.step == "prepare":
        for program in programs.PROGRAMS:
            fetch(program)
        programs.inputs(WORK)
        for program in chosen:
            build(program, "O2")
            build(program, "O3", "-O3")
            print(f"{program.name}: built", flush=True)
    elif options.step == "profile":
        for program in chosen:
            record(program, options)
            instrument(program)
            variants(program)
            print(f"{program.name}: all variants built", flush=True)
    elif options.step == "measure":
        measure(chosen, options.n)
        table()
    else:
        table()


if __name__ == "__main__":
    main()
