// pike bench.pike float|words
void floats() { float x = 1.0, y = 0.5; for (int i = 0; i < 100000; i++) { float d = x * x + y * y; x -= 0.013 * y / d; y += 0.017 * x / d; } }
void words() { mapping seen = ([]); for (int i = 0; i < 20000; i++) seen["w" + i % 977] += 1; }
int main(int argc, array(string) argv) { while (1) argv[1] == "float" ? floats() : words(); }
