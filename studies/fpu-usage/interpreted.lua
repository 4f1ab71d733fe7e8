if arg[1] == 'float' then
  local r = 0.0
  while true do
    for i = 1, 200 do
      local a, b, c = 0.1 * i, 0.3, 1.7
      for n = 1, 500 do a, b, c = b * c - a, a + 0.001 * n, c * 0.999 + b; if a > 100 then a = 0.5 end end
      r = r + a
    end
  end
end
while true do
  local t = {}
  for i = 1, 30000 do t[i] = (i * 1103515245 + 12345) % 65536 end
  table.sort(t)
  local s = {}
  for i = 1, 2000 do s[#s + 1] = tostring(t[i]) end
  local x = table.concat(s, ','):gsub('1', 'one')
end
