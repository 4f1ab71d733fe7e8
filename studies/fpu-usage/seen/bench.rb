# bench.rb float|words: numbers or text for ever.
if ARGV[0] == 'float'
  loop do
    x, y, v = 1.0, 0.5, 0.0
    100_000.times { d = x * x + y * y; x -= 0.01 * y / d; y += 0.01 * x / d; v += Math.sqrt(d) }
  end
end
loop do
  counts = Hash.new(0)
  20_000.times { |i| counts["w#{i * 7919 % 997}"] += 1 }
  counts.keys.sort.join(' ').scan(/w(\d)\d/)
end
