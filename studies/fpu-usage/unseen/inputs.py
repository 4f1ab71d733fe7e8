"""Makes the inputs of the unseen programs."""
import math
import random
import struct

random.seed(7)
words = ["".join(random.choice("etaoinshrdlucm") for _ in range(random.randint(2, 9))) for _ in range(3000)]
open("text", "w").write("\n".join(" ".join(random.choice(words) for _ in range(10)) for _ in range(150000)))
open("table.csv", "w").write("id,name,value\n" + "".join(
    f"{i},{random.choice(words)},{random.random():.5f}\n" for i in range(300000)))
open("bytes", "wb").write(b"".join(struct.pack("<hh", int(9000 * math.sin(i * i / 1e6)), random.randrange(-300, 300))
                                   for i in range(4000000)))
width, height = 1100, 800
open("picture.ppm", "wb").write(b"P6 %d %d 255\n" % (width, height) + bytes(
    (x * x // 90 + y * (c + 2) // 3 + 60 * (x // 41 % 2) + random.randrange(7)) % 256
    for y in range(height) for x in range(width) for c in range(3)))
with open("sound.wav", "wb") as out:
    samples = b"".join(struct.pack("<hh", int(9000 * math.sin(i / 20 + 3 * math.sin(i / 9000)) + random.gauss(0, 900)),
                                   int(8000 * math.sin(i / 33) + random.gauss(0, 500))) for i in range(48000 * 40))
    out.write(b"RIFF" + struct.pack("<I4s4sIHHIIHH4sI", 36 + len(samples), b"WAVE", b"fmt ", 16, 1, 2, 48000, 192000, 4,
                                    16, b"data", len(samples)) + samples)
with open("video.y4m", "wb") as out:
    out.write(b"YUV4MPEG2 W352 H288 F25:1 Ip C420jpeg\n")
    noise = [bytes(random.randrange(12) for _ in range(352)) for _ in range(40)]
    for frame in range(60):
        out.write(b"FRAME\n")
        for y in range(288):
            row = noise[random.randrange(40)]
            out.write(bytes((x * 2 + y + frame * 5 + row[x]) & 255 for x in range(352)))
        out.write(bytes([(128 + frame) & 255]) * (2 * 176 * 144))
variables = 220
with open("problem.cnf", "w") as out:
    out.write(f"p cnf {variables} {int(variables * 4.26)}\n")
    for _ in range(int(variables * 4.26)):
        out.write(" ".join(str(v * random.choice((-1, 1))) for v in random.sample(range(1, variables + 1), 3)) + " 0\n")
with open("problem.lp", "w") as out:
    out.write("Minimize\n obj: " + " + ".join(f"{random.uniform(1, 9):.3f} x{j}" for j in range(900)) + "\nSubject To\n")
    for i in range(600):
        terms = " + ".join(f"{random.uniform(.1, 3):.3f} x{j}" for j in random.sample(range(900), 60))
        out.write(f" r{i}: {terms} >= {random.uniform(5, 20):.3f}\n")
    out.write("End\n")
with open("problem.lpt", "w") as out:
    out.write("min: " + " + ".join(f"{random.uniform(1, 9):.3f} x{j}" for j in range(400)) + ";\n")
    for i in range(300):
        terms = " + ".join(f"{random.uniform(.1, 3):.3f} x{j}" for j in random.sample(range(400), 40))
        out.write(f"{terms} >= {random.uniform(5, 20):.3f};\n")
with open("proteins.fa", "w") as out:
    ancestor = "".join(random.choice("ACDEFGHIKLMNPQRSTVWY") for _ in range(300))
    for i in range(150):
        child = "".join(random.choice("ACDEFGHIKLMNPQRSTVWY") if random.random() < .5 else a for a in ancestor)
        out.write(f">p{i}\n{child}\n")
with open("taxa.fa", "w") as fasta, open("taxa.phy", "w") as phylip:
    base = [random.choice("ACGT") for _ in range(1500)]
    phylip.write("40 1500\n")
    for i in range(40):
        base = [random.choice("ACGT") if random.random() < .06 else b for b in base]
        fasta.write(f">t{i}\n{''.join(base)}\n")
        phylip.write(f"t{i:<9}" + "".join(base) + "\n")
genome = "".join(random.choice("ACGT") for _ in range(1000000))
open("genome.fa", "w").write(">g\n" + genome + "\n")
with open("reads.fq", "w") as out:
    for i in range(40000):
        at = random.randrange(len(genome) - 150)
        read = "".join(random.choice("ACGT") if random.random() < .02 else b for b in genome[at:at + 150])
        out.write(f"@r{i}\n{read}\n+\n{'I' * 150}\n")
with open("train.svm", "w") as out:
    for _ in range(3000):
        x = [random.gauss(0, 1) for _ in range(30)]
        label = 1 if x[0] * x[1] + x[2] > 0 else -1
        out.write(f"{label} " + " ".join(f"{j + 1}:{v:.4f}" for j, v in enumerate(x)) + "\n")
with open("circuit.cir", "w") as out:
    out.write("ladder\nV1 n0 0 SIN(0 5 1000)\n")
    for i in range(60):
        out.write(f"R{i} n{i} n{i + 1} 100\nC{i} n{i + 1} 0 1u\nD{i} n{i + 1} m{i} dx\nRm{i} m{i} 0 1k\n")
    out.write(".model dx D(Is=1e-14)\n.tran 1u 1\n.end\n")
with open("scene.dat", "w") as out:
    out.write("BEGIN_SCENE\nRESOLUTION 1200 900\nCAMERA\nZOOM 1.0\nASPECTRATIO 1.0\nANTIALIASING 4\nRAYDEPTH 4\n"
              "CENTER 0 0 -6\nVIEWDIR 0 0 1\nUPDIR 0 1 0\nEND_CAMERA\nLIGHT CENTER 4 3 -5 RAD 0.2 COLOR 1 1 1\n")
    for _ in range(200):
        out.write(f"SPHERE CENTER {random.uniform(-2, 2)} {random.uniform(-2, 2)} {random.uniform(-2, 2)} RAD 0.25\n"
                  "TEXTURE AMBIENT 0.1 DIFFUSE 0.8 SPECULAR 0.2 OPACITY 1.0 COLOR 1 .5 .2 TEXFUNC 0\n")
    out.write("END_SCENE\n")
open("music.csd", "w").write("""<CsoundSynthesizer><CsOptions>-n -d</CsOptions><CsInstruments>
sr=48000
ksmps=32
nchnls=2
instr 1
a1 oscili 8000, p4
a2 moogladder a1, 900+p4, .3
outs a2, a2
endin
</CsInstruments><CsScore>
""" + "".join(f"i1 0 3000 {200 + 37 * i}\n" for i in range(12)) + "</CsScore></CsoundSynthesizer>")
open("drawing.svg", "w").write('<svg xmlns="http://www.w3.org/2000/svg" width="900" height="900">' + "".join(
    f'<path d="M{random.randrange(900)} {random.randrange(900)} C' + " ".join(str(random.randrange(900)) for _ in range(6))
    + f'" stroke="rgb({i % 256},90,40)" fill="rgba(9,9,{i % 256},.2)" stroke-width="3"/>' for i in range(900)) + "</svg>")
open("long.c", "w").write("#include <stdio.h>\n" + "".join(
    f"static int f{i}(int a, int b) {{ int c[9]; for (int k = 0; k < 9; k++) c[k] = a * k + b; "
    f"switch (a & 3) {{ case 0: return c[b & 7]; case 1: return b - a; default: return c[1] ^ c[2]; }} }}\n"
    for i in range(4000)) + "int main(void) { return f0(1, 2); }\n")
open("long.asm", "w").write("".join(f"l{i}: mov eax, [rbx + {i * 4}]\n add eax, {i}\n jne l{max(0, i - 9)}\n" for i in range(40000)))
open("long.roff", "w").write("".join(f".PP\n{' '.join(random.choice(words) for _ in range(60))}\n" for _ in range(9000)))
open("macros.m4", "w").write("define(`count', `ifelse($1, 0, , `$1 count(decr($1))')')\n" + "count(300)\n" * 4000)
