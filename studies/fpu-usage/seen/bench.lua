-- bench.lua float|words: numbers or text for ever.
if arg[1] == 'float' then
  while true do
    local x, y, v = 1.0, 0.5, 0.0
    for i = 1, 100000 do
      local d = x * x + y * y
      x = x - 0.01 * y / d; y = y + 0.01 * x / d; v = v + math.sqrt(d)
    end
  end
end
while true do
  local counts = {}
  for i = 1, 20000 do local w = 'w' .. (i * 7919 % 997); counts[w] = (counts[w] or 0) + 1 end
  local keys = {}
  for k in pairs(counts) do keys[#keys + 1] = k end
  table.sort(keys)
  local n = 0
  for d in table.concat(keys, ' '):gmatch('w(%d)') do n = n + 1 end
end
