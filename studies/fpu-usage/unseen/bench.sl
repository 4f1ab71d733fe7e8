% For slsh: numbers or lists for ever.
define floats() { variable x = 1.0, y = 0.5, d; loop (100000) { d = x * x + y * y; x -= 0.013 * y / d; y += 0.017 * x / d; } return x; }
define words() { variable seen = Assoc_Type[Int_Type, 0], i; _for i (0, 20000, 1) seen["w" + string (i mod 977)] += 1; return seen; }
define slsh_main() { forever { if (__argv[1] == "floats") () = floats(); else () = words(); } }
