# awk -v what=float|words -f bench.awk: numbers or text for ever.
BEGIN {
    while (what == "float") {
        x = 1; y = .5
        for (i = 0; i < 100000; i++) { d = x * x + y * y; x -= .01 * y / d; y += .01 * x / d; v += sqrt(d) }
    }
    for (;;) {
        for (i = 0; i < 20000; i++) counts["w" (i * 7919 % 997)]++
        n = split("the quick brown fox jumps over the lazy dog", words, " ")
        gsub(/o/, "0", words[4])
    }
}
