-- Calls, tables, strings, closures and sorting: what an interpreter does all day. Argument: how much.
local n = tonumber(arg[1])

local function queens(size, row, columns, up, down)
  if row > size then return 1 end
  local found = 0
  for column = 1, size do
    if not columns[column] and not up[row + column] and not down[row - column] then
      columns[column], up[row + column], down[row - column] = true, true, true
      found = found + queens(size, row + 1, columns, up, down)
      columns[column], up[row + column], down[row - column] = nil, nil, nil
    end
  end
  return found
end

local Account = {}
Account.__index = Account
function Account.new(balance) return setmetatable({ balance = balance, log = {} }, Account) end
function Account:add(amount)
  if self.balance + amount < 0 then return false end
  self.balance = self.balance + amount
  self.log[#self.log + 1] = amount
  return true
end

local function words(count, seed)
  local list = {}
  for i = 1, count do
    seed = (seed * 1103515245 + 12345) % 2147483648
    list[i] = string.format("%x", seed):gsub("[0-4]", string.char(97 + seed % 26))
  end
  return list, seed
end

local total, seed = 0, 42
for round = 1, n do
  total = total + queens(6 + round % 2, 1, {}, {}, {})
  local list
  list, seed = words(400, seed)
  table.sort(list, function(a, b) return a < b end)
  local text = table.concat(list, " ")
  for word in text:gmatch("%a+") do total = total + #word end
  local account = Account.new(100)
  for i = 1, 2000 do
    if account:add((i * 37) % 11 - 5) then total = total + 1 end
  end
  local adders = {}
  for i = 1, 200 do adders[i] = function(x) return x + i end end
  for i = 1, 200 do total = total + adders[i](i) % 3 end
end
print(total)
