"""Makes the inputs of the unseen programs."""
import random
import zlib

random.seed(2)
words = ["".join(random.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(random.randint(2, 10))) for _ in range(5000)]
text = "\n".join(" ".join(random.choice(words) for _ in range(12)) for _ in range(200000))
open("text", "w").write(text)
open("records.json", "w").write(
    "[" + ",".join('{"id":%d,"name":"%s","value":%.3f}' % (i, random.choice(words), random.random())
                   for i in range(200000)) + "]")
open("records.xml", "w").write(
    "<all>" + "".join('<r id="%d"><name>%s</name></r>' % (i, random.choice(words)) for i in range(300000)) + "</all>")

# A picture, as PNM and PNG.
width, height = 1200, 900
rows = [bytes((x * y // 50 + 40 * ((x // 37 + y // 53) % 3) * c + random.randrange(9)) % 256
              for x in range(width) for c in range(3)) for y in range(height)]
open("picture.ppm", "wb").write(b"P6 %d %d 255\n" % (width, height) + b"".join(rows))
def chunk(kind, data):
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
open("picture.png", "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(
    b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), 1)) + chunk(b"IEND", b""))
bits = [bytes(sum(((x + b) * y % 97 < 40 + y % 31) << (7 - b) for b in range(8)) for x in range(0, 2400, 8))
        for y in range(2400)]
open("picture.pbm", "wb").write(b"P4 2400 2400\n" + b"".join(bits))

# A random 3-SAT problem near the threshold, for minisat; and one of arithmetic, for z3.
variables = 320
with open("problem.cnf", "w") as out:
    clauses = int(variables * 4.26)
    out.write(f"p cnf {variables} {clauses}\n")
    for _ in range(clauses):
        chosen = random.sample(range(1, variables + 1), 3)
        out.write(" ".join(str(v * random.choice((-1, 1))) for v in chosen) + " 0\n")
with open("problem.smt2", "w") as out:
    out.write("(set-logic QF_BV)\n(declare-fun a () (_ BitVec 40))\n(declare-fun b () (_ BitVec 40))\n"
              "(assert (= (bvmul a b) #x0fffb00391))\n(assert (bvugt a #x0000000001))\n(assert (bvugt b a))\n"
              "(assert (bvult b #x0000100000))\n(check-sat)\n")

# A linear program for glpsol.
rows, columns = 400, 600
with open("problem.lp", "w") as out:
    out.write("Minimize\n obj: " + " + ".join(f"{random.uniform(1, 9):.3f} x{j}" for j in range(columns)))
    out.write("\nSubject To\n")
    for i in range(rows):
        terms = " + ".join(f"{random.uniform(.1, 3):.3f} x{j}" for j in random.sample(range(columns), 60))
        out.write(f" r{i}: {terms} >= {random.uniform(5, 20):.3f}\n")
    out.write("End\n")

# A graph, points, sequences.
with open("graph.dot", "w") as out:
    out.write("graph {\n" + "".join(f" {i} -- {random.randrange(i)};\n" for i in range(1, 1500)) + "}\n")
with open("points", "w") as out:
    out.write("6\n20000\n")
    for _ in range(20000):
        out.write(" ".join(f"{random.gauss(0, 1):.6f}" for _ in range(6)) + "\n")
genome = "".join(random.choice("ACGT") for _ in range(2000000))
open("genome.fa", "w").write(">g\n" + "\n".join(genome[i:i + 70] for i in range(0, len(genome), 70)) + "\n")
with open("proteins2.fa", "w") as out:
    ancestor = "".join(random.choice("ACDEFGHIKLMNPQRSTVWY") for _ in range(350))
    for i in range(60):
        child = "".join(random.choice("ACDEFGHIKLMNPQRSTVWY") if random.random() < .4 else a for a in ancestor)
        out.write(f">p{i}\n{child}\n")
with open("taxa.phy", "w") as out:
    out.write("24 1200\n")
    base = [random.choice("ACGT") for _ in range(1200)]
    for i in range(24):
        base = [random.choice("ACGT") if random.random() < .05 else b for b in base]
        out.write(f"taxon{i:<5}" + "".join(base) + "\n")
with open("drawing.ps", "w") as out:
    out.write("%!PS\n/n 0 def { n 360 mod rotate 0 0 moveto 3 { 200 rand 300 mod rand 500 mod 40 90 300 200 curveto } "
              "repeat stroke 100 100 50 n 7 mod 10 mul 350 arc fill /n n 1 add def n 997 mod 0 eq {showpage} if } loop\n")
open("program.cpp", "w").write(
    "#include <map>\n#include <string>\n#include <vector>\n#include <regex>\n#include <functional>\n" + "".join(
        f"template <class T> T f{i}(T a) {{ std::map<std::string, std::vector<T>> m; m[\"{i}\"].push_back(a); "
        f"return m.size() + (a > {i} ? f{i - 1 if i else 0}<T>(a - 1) : a); }}\n"
        f"long g{i}(long a) {{ return f{i}<long>(a) + f{i}<int>(int(a)); }}\n" for i in range(120)))
