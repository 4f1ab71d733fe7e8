// `node jit.js float|integer` runs for ever in code that V8 compiles at run time.
const size = 4096;
const floats = Float64Array.from({ length: size }, (_, i) => i / size);
const integers = Int32Array.from({ length: size }, (_, i) => i * 7);
let sink = 0;
function float() {
  for (let i = 1; i < size - 1; i++) floats[i] = 0.33 * (floats[i - 1] + floats[i] + floats[i + 1]);
  return floats[7];
}
function integer() {
  for (let i = 1; i < size; i++) integers[i] = (integers[i] ^ (integers[i - 1] >>> 3)) + i | 0;
  return integers[7];
}
const work = { float, integer }[process.argv[2]];
for (;;) sink += work();
