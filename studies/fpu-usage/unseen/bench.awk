# awk -v what=float|words -f bench.awk: numbers or words for ever, for BusyBox and the original awk.
BEGIN {
    while (1) {
        if (what == "float") { x = 1; y = .5; for (i = 0; i < 10000; i++) { d = x * x + y * y; x -= .013 * y / d; y += .017 * x / d } }
        else for (i = 0; i < 10000; i++) { w = "w" (i % 977); seen[w] = length(w) substr(w, 2, 2) }
    }
}
