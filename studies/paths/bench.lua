-- Work for the Lua interpreter: recursion, tables, strings, closures and floating point, in fixed amounts.
local function fibonacci(n) return n < 2 and n or fibonacci(n - 1) + fibonacci(n - 2) end

local function sieve(limit)
  local composite, count = {}, 0
  for i = 2, limit do
    if not composite[i] then
      count = count + 1
      for j = i * i, limit, i do composite[j] = true end
    end
  end
  return count
end

local function tree(depth)
  if depth == 0 then return {} end
  return { tree(depth - 1), tree(depth - 1) }
end

local function nodes(t) return t[1] and 1 + nodes(t[1]) + nodes(t[2]) or 1 end

local function queens(n)
  local columns, falling, rising, solutions = {}, {}, {}, 0
  local function place(row)
    if row > n then solutions = solutions + 1 return end
    for c = 1, n do
      if not (columns[c] or falling[row + c] or rising[row - c + n]) then
        columns[c], falling[row + c], rising[row - c + n] = true, true, true
        place(row + 1)
        columns[c], falling[row + c], rising[row - c + n] = nil, nil, nil
      end
    end
  end
  place(1)
  return solutions
end

local function words(count)
  local seen, parts = {}, {}
  for i = 1, count do
    local word = string.format("w%d", i * 7919 % 4096)
    seen[word] = (seen[word] or 0) + 1
    if i % 16 == 0 then parts[#parts + 1] = word:upper():sub(2) end
  end
  table.sort(parts)
  return #table.concat(parts, " ")
end

local function mandelbrot(size)
  local inside = 0
  for y = 0, size - 1 do
    for x = 0, size - 1 do
      local a, b, u, v, steps = 2.0 * x / size - 1.5, 2.0 * y / size - 1.0, 0.0, 0.0, 0
      while steps < 50 and u * u + v * v < 4 do
        u, v, steps = u * u - v * v + a, 2 * u * v + b, steps + 1
      end
      if steps == 50 then inside = inside + 1 end
    end
  end
  return inside
end

print(fibonacci(32), sieve(3000000), nodes(tree(18)), queens(9), words(1200000), mandelbrot(450))
