-- Matrices, a sieve, recursion, objects and text: other work than that which is measured. Argument: each how
-- many-th word is joined (GopherLua can not join 4000).
local every = tonumber(arg[1]) or 16

local function matrix(n)
  local rows = {}
  for i = 1, n do
    rows[i] = {}
    for j = 1, n do rows[i][j] = (i * j) % 7 + 0.5 end
  end
  return rows
end

local function product(a, b)
  local n, c = #a, {}
  for i = 1, n do
    c[i] = {}
    for j = 1, n do
      local sum = 0
      for k = 1, n do sum = sum + a[i][k] * b[k][j] end
      c[i][j] = sum
    end
  end
  return c
end

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

local function fibonacci(n) return n < 2 and n or fibonacci(n - 1) + fibonacci(n - 2) end

local Shape = {}
Shape.__index = Shape
function Shape.new(w, h) return setmetatable({ w = w, h = h }, Shape) end
function Shape:area() return self.w * self.h end
function Shape:scaled(by) return Shape.new(self.w * by, self.h * by) end

local seen, parts, area = {}, {}, 0
for i = 1, 60000 do
  local word = "w" .. i * 7919 % 4096
  seen[word] = (seen[word] or 0) + 1
  if i % every == 0 then parts[#parts + 1] = word:upper():sub(2) end
  area = area + Shape.new(i % 13, 2):scaled(0.5):area()
end
local text = table.concat(parts, ",")
local fields = 0
for field in text:gmatch("[^,]+") do fields = fields + #field end
print(product(matrix(80), matrix(80))[7][9], sieve(300000), fibonacci(24), area, fields, text:find("4095"), #text:rep(3))
