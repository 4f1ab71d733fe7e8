<?php // bench.php float|words: numbers or text for ever.
if ($argv[1] === 'float') {
    for ($v = 0.3;;) {
        $x = 1.0; $y = 0.5;
        for ($i = 0; $i < 100000; $i++) { $d = $x * $x + $y * $y; $x = $x - 0.01 * $y / $d; $y = $y + 0.01 * $x / $d; $v += sqrt($d); }
    }
}
for (;;) {
    $counts = [];
    for ($i = 0; $i < 20000; $i++) { $word = 'w' . ($i * 7919 % 997); $counts[$word] = ($counts[$word] ?? 0) + 1; }
    ksort($counts);
    $text = implode(' ', array_keys($counts));
    preg_match_all('/w(\d)\d/', $text, $found);
}
