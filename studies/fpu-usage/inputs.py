"""Makes the inputs that are text: a C program, a flow network, a game, a video and a linear program."""
import random

random.seed(1)

# A C program of a few thousand functions with branches, loops and structures.
with open("program.c", "w") as out:
    out.write("struct node { int key; struct node *next, *other; char name[24]; };\n")
    for f in range(1500):
        a, b, c = (random.randrange(1, 99) for _ in range(3))
        callee = f"f{random.randrange(f)}(n->next, x - {a})" if f else "x"
        out.write(
            f"int f{f}(struct node *n, int x) {{\n  int sum = {a};\n"
            f"  for (int i = 0; i < x; i += {b}) {{\n"
            f"    if (n && n->key > {c} && i % {a} == 1) sum += {callee};\n"
            f"    else switch ((x + i) % 5) {{ case 0: sum ^= {b}; break; case 1: sum -= i * {c}; break;\n"
            f"      case 2: if (n) n->key += sum; break; default: sum = sum * {a} + i; }}\n  }}\n"
            f"  while (n && n->key != x) {{\n    n = n->name[x & 15] == {c} ? n->other : n->next;\n"
            f"    sum++;\n  }}\n"
            f"  return sum;\n}}\n")

# A minimum-cost flow problem for the network simplex (DIMACS format).
nodes, supply = 40000, 4000
with open("flow.dimacs", "w") as out:
    arcs = [(i, i % nodes + 1, 50000, 900) for i in range(1, nodes + 1)]
    for _ in range(400000):
        tail, head = random.sample(range(1, nodes + 1), 2)
        arcs.append((tail, head, random.randint(1, 50), random.randint(1, 1000)))
    out.write(f"p min {nodes} {len(arcs)}\n")
    ends = random.sample(range(1, nodes + 1), 2 * supply)
    for i, node in enumerate(ends):
        out.write(f"n {node} {10 if i < supply else -10}\n")
    for arc in arcs:
        out.write("a %d %d 0 %d %d\n" % arc)

# A game of go that the program plays against itself.
with open("game.gtp", "w") as out:
    out.write("boardsize 19\nlevel 12\n" + "genmove black\ngenmove white\n" * 100)

# A video: moving blocks with noise.
width, height = 640, 360
with open("video.y4m", "wb") as out:
    out.write(b"YUV4MPEG2 W%d H%d F25:1 C420\n" % (width, height))
    background = [bytes((x * y // 97 + random.randrange(8)) % 256 for x in range(width + 60))
                  for y in range(height)]
    for frame in range(60):
        out.write(b"FRAME\n")
        out.write(b"".join(line[frame:frame + width] for line in background))
        out.write(bytes(128 for _ in range(width * height // 2)))

# A linear program: cover 1,500 demands at least cost.
rows, columns = 1500, 3000
with open("problem.lp", "w") as out:
    cost = " + ".join(f"{random.uniform(1, 9):.3f} x{j}" for j in range(columns))
    out.write(f"Minimize\n obj: {cost}\nSubject To\n")
    for i in range(rows):
        terms = " + ".join(f"{random.uniform(0.1, 3):.3f} x{j}" for j in random.sample(range(columns), 40))
        out.write(f" r{i}: {terms} >= {random.uniform(5, 20):.3f}\n")
    out.write("End\n")
