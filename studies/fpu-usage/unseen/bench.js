// bench.js float|words, for MuJS and Duktape: numbers or words for ever.
function float() { var x = 1, y = .5; for (var i = 0; i < 100000; i++) { var d = x * x + y * y; x -= .013 * y / d; y += .017 * x / d; } return x; }
function words() { var seen = {}; for (var i = 0; i < 20000; i++) { var w = "w" + i % 977; seen[w] = (seen[w] || "").length + w; } return seen; }
var what = typeof scriptArgs !== "undefined" ? scriptArgs[0] : WHAT;
while (true) what == "float" ? float() : words();
