-- Arguments: hashes, before, the conversation that recall.lua found, shared, most messages, most bytes. Answer: own,
-- count, tip, packed messages after the first `shared`; for each conversation with these first `shared` messages and
-- others after them, newest first. Only those that the chain could repeat as a whole are looked at, and at most some
-- thirty.
local near, shared, most, budget = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local found, seen = {}, {}
local function look(own)
  if not own or seen[own] then return end
  seen[own] = true
  local conv = open(own)
  local fits = conv and conv.count > shared and conv.count < N and conv.count - shared <= most
  if fits and hash_at(conv, shared) == chain(shared) and call('HEXISTS', key('c', own), 'stem') == 0 then
    found[#found + 1] = conv
  end
end
look(call('GET', key('n', chain(shared))))
for _, own in ipairs(call('LRANGE', key('g', chain(shared)), 0, -1)) do look(own) end
look(near)
for _, own in ipairs(call('SRANDMEMBER', key('b', near), 16)) do look(own) end

local function rest(conv)  -- its messages after the first `shared`, and their bytes
  local parts, messages, size, last = {}, {}, 0, conv.count
  while conv and last > shared do
    local from = math.max(shared, conv.base)
    table.insert(parts, 1, call('LRANGE', key('m', conv.own), from - conv.base, last - conv.base - 1))
    last, conv = from, open(conv.parent)
  end
  for _, part in ipairs(parts) do
    for _, message in ipairs(part) do
      messages[#messages + 1] = message
      size = size + #message
    end
  end
  return messages, size
end
local answer = {}
for _, conv in ipairs(found) do
  if budget > 0 then
    local messages, size = rest(conv)
    budget = budget - size
    for _, part in ipairs({conv.own, conv.count, conv.tip, messages}) do answer[#answer + 1] = part end
  end
end
return answer
