"""The programs: where their sources come from, how they are built, and what they are made to do.

Each is built by its own build system; `{flags}` and its like in `build` are corewise's. Profiles are taken with the
input `train`, times with `measure`, which differs from it in kind where the program permits. In these, `@inputs`,
`@work` and `@src` are folders.
"""

import glob
import json
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))
STUDIES = os.path.dirname(HERE)


class Program:
    """`source` is a Debian package, or `go:MODULE@VERSION`, or `crate:NAME@VERSION`."""

    def __init__(self, name, language, system, source, binary, build, train, measure, prepare="", environment=None):
        self.name, self.language, self.system, self.source = name, language, system, source
        self.binary, self.build, self.prepare = binary, build, prepare
        self.train, self.measure = train, measure
        self.environment = environment or {}


JQ_TRAIN = ("'[.people[] | select(.age > 30) | {name, n: (.tags | length)}] | group_by(.n) | map(length)' "
            "@work/people.json")
JQ_MEASURE = ("'[.. | numbers] as $n | ($n | length), ($n | add), ([.. | strings | ascii_upcase | length] | add), "
              "([paths] | length)' @work/tree.json")
CMAKE = "rm -rf b && cmake -S . -B b -DCMAKE_BUILD_TYPE=Release"
JQ_OPTIONS = "--disable-shared --disable-docs --disable-maintainer-mode --without-oniguruma --disable-valgrind"
LUA = ("make -C src clean && make -j2 -C src linux CC={cc} MYCFLAGS='{flags}' MYLDFLAGS='{ldflags}'",
       "@inputs/train.lua", "@studies/paths/rebuild/inputs/bench.lua 250")
CARGO = "touch src/main.rs && RUSTFLAGS='{rustflags}' cargo build --release"
JAQ = ("crate:jaq@2.3.0", "target/release/jaq", CARGO, JQ_TRAIN, JQ_MEASURE)
NIGHTLY = {"RUSTC_BOOTSTRAP": "1"}

PROGRAMS = [
    Program("bzip2", "C", "make", "bzip2", "bzip2",
            "make clean && make bzip2 CC={cc} CFLAGS='-O2 -D_FILE_OFFSET_BITS=64 {flags}' LDFLAGS='{ldflags}'",
            "-c @work/c.txt", "-c @work/data.txt"),
    Program("bzip2 (gcc)", "C", "make", "bzip2", "bzip2",
            "make clean && make bzip2 CC=gcc CFLAGS='-O2 -D_FILE_OFFSET_BITS=64 {gccflags}' LDFLAGS='{ldflags}'",
            "-c @work/c.txt", "-c @work/data.txt"),
    Program("lua", "C", "make", "lua5.4", "src/lua", *LUA),
    Program("lua (gcc)", "C", "make", "lua5.4", "src/lua",
            LUA[0].replace("{cc}", "gcc").replace("{flags}", "{gccflags}"), *LUA[1:]),
    Program("mujs", "C", "make", "mujs", "build/plain/mujs",
            "rm -rf build && make -j2 build=plain HAVE_READLINE=no CC={cc} XCFLAGS='-O2 {flags}' LDFLAGS='{ldflags}' "
            "build/plain/mujs", "@inputs/train.js", "@work/measure.js"),
    Program("duktape", "C", "make", "duktape", "duk",
            "rm -f duk && make -f Makefile.cmdline CC={cc} CFLAGS='{flags}' LDFLAGS='{ldflags}' "
            "CCOPTS='-O2 -std=c99 -DDUK_CMDLINE_PRINTALERT_SUPPORT -Isrc -Iextras/print-alert' "
            "CMDLINE_SOURCES='examples/cmdline/duk_cmdline.c extras/print-alert/duk_print_alert.c'",
            "@inputs/train.js", "@work/measure.js"),
    Program("mawk", "C", "autotools", "mawk", "mawk",
            "./configure CC={cc} CFLAGS='-O2 {flags}' LDFLAGS='{ldflags}' && make clean && make -j2",
            "-f @studies/paths/bench.awk @work/data.txt", "-f @studies/paths/rebuild/inputs/bench.awk @work/c.txt"),
    Program("sqlite", "C", "autotools", "sqlite3", "sqlite3",
            "./configure CC={cc} CFLAGS='-O2 {flags}' LDFLAGS='{ldflags}' --disable-shared --disable-readline "
            "--disable-tcl --disable-threadsafe --disable-load-extension && make clean && make -j2 sqlite3",
            ":memory: -init @studies/paths/bench.sql .exit", ":memory: -init @work/measure.sql .exit"),
    Program("jq", "C", "autotools", "jq", "jq",
            f"./configure CC={{cc}} CFLAGS='-O2 {{flags}}' LDFLAGS='{{ldflags}}' {JQ_OPTIONS} && make clean "
            "&& make -j2",
            JQ_TRAIN, JQ_MEASURE, prepare="autoreconf -fi"),
    Program("tcc", "C", "own configure", "tcc", "tcc",
            "make clean; ./configure --cc={cc} --extra-cflags='-O2 {flags}' && make tcc LDFLAGS='{ldflags}'",
            "-B. -Iinclude -I/usr/include/@machine -DLUA_USE_LINUX -c @lua",
            "-B. -Iinclude -I/usr/include/@machine -c @src/duktape/src/duktape.c @src/duktape/src/duktape.c "
            "@src/duktape/src/duktape.c @src/duktape/src/duktape.c"),
    Program("brotli", "C", "CMake", "brotli", "b/brotli",
            f"{CMAKE} -DBUILD_SHARED_LIBS=OFF -DBROTLI_BUNDLED_MODE=ON -DCMAKE_C_COMPILER={{cc}} "
            "-DCMAKE_C_FLAGS='{flags}' -DCMAKE_EXE_LINKER_FLAGS='{ldflags}' && make -C b brotli",
            "-c -q 6 @work/c.txt", "-c -q 6 @work/data.txt"),
    Program("serd", "C", "Meson", "serd", "b/serdi",
            "rm -rf b && CC={cc} CFLAGS='{flags}' LDFLAGS='{ldflags}' meson setup b --buildtype=release "
            "-Ddefault_library=static -Ddocs=disabled -Dtests=disabled && ninja -C b",
            "-o ntriples @work/train.ttl", "-o ntriples @work/measure.ttl"),
    Program("cadical", "C++", "own configure", "cadical", "build/cadical",
            "rm -rf build && ./configure CXX={cxx} CXXFLAGS='{flags}' && make -j2 -C build cadical",
            "-q -n -c 20000 @work/random.cnf", "-q -n -c 12000 @work/colours.cnf"),
    Program("flatc", "C++", "CMake", "flatbuffers", "b/flatc",
            f"{CMAKE} -DFLATBUFFERS_LIBCXX_WITH_CLANG=OFF -DFLATBUFFERS_BUILD_TESTS=OFF -DCMAKE_CXX_COMPILER={{cxx}} "
            "-DCMAKE_CXX_FLAGS='{flags} -w' -DCMAKE_EXE_LINKER_FLAGS='{ldflags}' && make -C b -j2 flatc",
            "-b -o @work/out @inputs/train.fbs @work/people.json",
            "-b -o @work/out @inputs/measure.fbs @work/large-boxes.json"),
    Program("gojq", "Go", "go build", "go:github.com/itchyny/gojq@v0.12.17", "prog",
            "go build -buildvcs=false {goflags} -o prog ./cmd/gojq", JQ_TRAIN, JQ_MEASURE),
    Program("glua", "Go", "go build", "go:github.com/yuin/gopher-lua@v1.1.2", "prog",
            "go build -buildvcs=false {goflags} -o prog ./cmd/glua", "@inputs/train.lua 64",
            "@studies/paths/rebuild/inputs/bench.lua 60"),
    Program("jaq", "Rust", "Cargo", *JAQ, environment=NIGHTLY),
    Program("jaq (stable)", "Rust", "Cargo", *JAQ),
]


def workload(text, work):
    """A workload's arguments, as for the shell."""
    lua = " ".join(sorted(file for file in glob.glob(f"{work}/src/lua/src/l*.c") if not file.endswith("luac.c")))
    words = {"@inputs": f"{HERE}/inputs", "@studies": STUDIES, "@work": work, "@src": f"{work}/src", "@lua": lua,
             "@machine": f"{os.uname().machine}-linux-gnu"}
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def inputs(work):
    """Writes the inputs that are not in a folder of the repository."""
    random.seed(1)
    own = lambda file: open(os.path.join(STUDIES, "paths", "rebuild", "inputs", file)).read()
    files = {"measure.js": "var rounds = 80;\n" + own("bench.js"),
             "measure.sql": own("bench.sql").replace("@rows", "200000"), "c.txt": c_text(work),
             "people.json": json.dumps(people(6000)), "tree.json": json.dumps(tree(9)), "boxes.json": boxes(),
             "train.ttl": train_ttl(), "measure.ttl": measure_ttl(), "random.cnf": random_cnf(320, 4.26),
             "colours.cnf": colours_cnf(300, 4)}
    files["data.txt"] = (files["tree.json"] + files["boxes.json"])[:4000000].replace("}, ", "},\n")
    files["large-boxes.json"] = json.dumps({"boxes": json.loads(files["boxes.json"])["boxes"] * 6})
    os.makedirs(f"{work}/out", exist_ok=True)
    for name, text in files.items():
        with open(f"{work}/{name}", "w") as file:
            file.write(text)


def c_text(work):
    """4 MB of C."""
    files = sorted(glob.glob(f"{work}/src/lua/src/*.c") + glob.glob(f"{work}/src/sqlite/src/*.c"))
    return "".join(open(file, errors="replace").read() for file in files)[:4000000]


def word():
    return "".join(random.choice("etaoinshrdlu") for _ in range(random.randint(2, 9)))


def people(count):
    """Records, all alike."""
    return {"people": [person() for _ in range(count)]}


def person():
    return {"name": f"{word()} {word()}", "age": random.randint(1, 90),
            "tags": [word() for _ in range(random.randint(0, 5))],
            "home": {"street": word(), "number": random.randint(1, 200)}}


def tree(depth):
    """Nested objects of uneven depth."""
    if depth == 0 or random.random() < 0.1:
        return random.choice([random.random() * 1000, word() + " ü " + word(), None, True, random.randint(-9, 9)])
    if depth % 3 == 0:
        return [tree(depth - 1) for _ in range(5)]
    return {word() + "-" + word(): tree(depth - 1) for _ in range(4)}


def boxes():
    """Records of other kinds, with many numbers and escapes."""
    box = lambda: {"label": word() + "\\\" \u00e9\n" + word(), "kind": random.choice(["Small", "Large"]),
                   "at": {"x": random.random(), "y": random.gauss(0, 1e6)},
                   "sizes": [random.random() for _ in range(20)]}
    return json.dumps({"boxes": [box() for _ in range(9000)]}, indent=1)


def train_ttl():
    """Turtle by prefixed names, with lists of objects."""
    lines = ["@prefix f: <http://example.org/f#> ."]
    for i in range(30000):
        lines.append(f'f:p{i} a f:Person ; f:name "{word()}" ; f:knows f:p{i // 2}, f:p{i // 3} .')
    return "\n".join(lines)


def measure_ttl():
    """Turtle by whole addresses, with numbers, types, escapes and blank nodes."""
    lines = []
    for i in range(60000):
        lines.append(f'<http://example.org/things/{word()}/{i}> <http://example.org/terms/size> "{i}.5"^^'
                     f'<http://www.w3.org/2001/XMLSchema#decimal> ; <http://example.org/terms/note> '
                     f'"{word()} \\"{word()}\\" \\u00e9 {word()} {word()}"@en ; <http://example.org/terms/part> '
                     f'[ <http://example.org/terms/n> {i} ] .')
    return "\n".join(lines)


def cnf(variables, clauses):
    return "\n".join([f"p cnf {variables} {len(clauses)}"] + [" ".join(map(str, clause + [0])) for clause in clauses])


def random_cnf(variables, ratio):
    """Random clauses of three."""
    some = lambda: [random.choice([-1, 1]) * v for v in random.sample(range(1, variables + 1), 3)]
    return cnf(variables, [some() for _ in range(int(variables * ratio))])


def colours_cnf(vertices, colours):
    """Whether a random graph can be coloured: long clauses, and many of two."""
    at = lambda vertex, colour: vertex * colours + colour + 1
    clauses = [[at(vertex, colour) for colour in range(colours)] for vertex in range(vertices)]
    for _ in range(int(vertices * 4.2)):
        one, other = random.sample(range(vertices), 2)
        clauses += [[-at(one, colour), -at(other, colour)] for colour in range(colours)]
    return cnf(vertices * colours, clauses)
