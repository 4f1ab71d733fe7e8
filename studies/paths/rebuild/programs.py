"""The programs: where their sources come from, how one compiler call builds them, and what they are made to do.

Each has two workloads: profiles are taken with the first, and times are measured with the second, which differs
from it. The sources are Debian's, by `apt-get source`.
"""

import os
import random
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))


class Program:
    """`sources` are relative to the source tree, `train` and `measure` are commands in which `{}` is the program."""

    def __init__(self, name, package, sources, flags="", libraries="", prepare="", train="", measure=""):
        self.name, self.package, self.sources, self.flags = name, package, sources.split(), flags.split()
        self.libraries, self.prepare = libraries.split(), prepare
        self.train, self.measure = train, measure


PROGRAMS = [
    Program(
        "lua", "lua5.4",
        " ".join(f"src/{name}.c" for name in (
            "lapi lauxlib lbaselib lcode lcorolib lctype ldblib ldebug ldo ldump lfunc lgc linit liolib llex lmathlib "
            "lmem loadlib lobject lopcodes loslib lparser lstate lstring lstrlib ltable ltablib ltm lua lundump "
            "lutf8lib lvm lzio").split()),
        # LLVM 19's BOLT refuses the computed jumps that Lua else uses ("unable to get new address").
        "-DLUA_USE_LINUX -DLUA_USE_JUMPTABLE=0", "-lm -ldl",
        train="{} {inputs}/bench.lua 150", measure="{} {inputs}/bench.lua 400"),
    Program(
        "mujs", "mujs", "one.c main.c", "", "-lm",
        train="{} {work}/train.js", measure="{} {work}/measure.js"),
    Program(
        "mawk", "mawk",
        " ".join(f"{name}.c" for name in (
            "parse scan memory main hash execute code da error init bi_vars cast print bi_funct kw jmp array field "
            "split re_cmpl regexp zmalloc fin files scancode matherr fcall version").split()),
        "-DHAVE_CONFIG_H -DLOCAL_REGEXP -D_DEFAULT_SOURCE -D_XOPEN_SOURCE=500 -I.", "-lm",
        prepare="CC=clang-19 ./configure && make scancode.c",
        train="{} -f {inputs}/bench.awk {work}/train.txt", measure="{} -f {inputs}/bench.awk {work}/measure.txt"),
    Program(
        "tcc", "tcc", "tcc.c", "-DONE_SOURCE=1 -DTCC_GITHASH=\"\"", "-ldl -lm -lpthread",
        prepare="./configure --cc=clang-19",
        train="{} {tcc} -c {src}/mujs/one.c -o {work}/tcc.o", measure="{} {tcc} -c {src}/sqlite/sqlite3.c -o {work}/tcc.o"),
    Program(
        "bzip2", "bzip2", "blocksort.c huffman.c crctable.c randtable.c compress.c decompress.c bzlib.c bzip2.c",
        "-D_FILE_OFFSET_BITS=64", "",
        train="{} -c {work}/train.txt", measure="{} -c {work}/measure.txt"),
    Program(
        "sqlite", "sqlite3", "sqlite3.c shell.c", "-DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION", "-lm",
        prepare="CC=clang-19 ./configure && make sqlite3.c shell.c",
        train="{} :memory: -init {work}/train.sql .exit", measure="{} :memory: -init {work}/measure.sql .exit"),
]


def inputs(work):
    """Writes the workloads that are not in this folder. The texts are the programs' own sources, in another order."""
    sources = os.path.join(work, "src")
    for name, rounds, rows in (("train", 120, 60000), ("measure", 300, 200000)):
        write = lambda file, text: open(os.path.join(work, f"{name}.{file}"), "w").write(text)
        own = lambda file: open(os.path.join(HERE, "inputs", f"bench.{file}")).read()
        write("js", f"var rounds = {rounds};\n" + own("js"))
        write("sql", own("sql").replace("@rows", str(rows)))
        write("txt", text(sources, name))


def text(sources, name):
    """About 6 MB of C for the measurement, 3 MB of other C for the profile."""
    programs = {"train": ("lua", "mujs", "tcc", "mawk", "bzip2"), "measure": ("sqlite",)}[name]
    files = []
    for program in programs:
        command = ["find", os.path.join(sources, program, ""), "-name", "*.c", "-size", "-800k"]
        files += subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    files.sort()
    random.Random(1).shuffle(files)
    whole = "".join(open(file, errors="replace").read() for file in files)
    return whole[:{"train": 3, "measure": 6}[name] * 1000000]


def command(template, binary, work):
    """A workload's command line for a binary."""
    tcc = os.path.join(work, "src", "tcc")
    options = f"-B{tcc} -I{tcc}/include -I/usr/include/{os.uname().machine}-linux-gnu"
    words = {"inputs": os.path.join(HERE, "inputs"), "work": work, "src": os.path.join(work, "src"), "tcc": options}
    return template.format(binary, **words).split()
