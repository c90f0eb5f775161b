-- Arguments: hashes, before, the conversation that recall.lua found, shared, most messages, most bytes. Answer: 1 if
-- the store has one message alone after the first `shared`, else 0; then own, count, tip, turns, packed messages after
-- the first `shared`; for each conversation with these first `shared` messages and others after them, newest first.
-- Only those that the chain could repeat as a whole are returned, and at most some thirty are looked at.
local near, shared, most, budget = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local found, seen, next_hash = {}, {}, nil
local alone = true  -- whether all that go on from here were looked at, and all have the same next message
local function look(own)
  if not own or seen[own] then return end
  seen[own] = true
  local conv = open(own)
  if not conv or conv.count <= shared or hash_at(conv, shared) ~= chain(shared) then return end
  local following = hash_at(conv, shared + 1)
  alone = alone and (next_hash or following) == following and (own == near or call('EXISTS', key('b', own)) == 0)
  next_hash = following
  if conv.count >= N then return end
  if conv.count - shared > most then alone = false return end
  if call('HEXISTS', key('c', own), 'stem') == 0 then found[#found + 1] = conv end
end
look(call('GET', key('n', chain(shared))))
local forks = call('LRANGE', key('g', chain(shared)), 0, -1)
for _, own in ipairs(forks) do look(own) end
look(near)
local others = call('SRANDMEMBER', key('b', near), 16)
for _, own in ipairs(others) do look(own) end
if #forks >= 16 or #others >= 16 then alone = false end

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
local answer = {alone and 1 or 0}
for _, conv in ipairs(found) do
  if budget > 0 then
    local messages, size = rest(conv)
    budget = budget - size
    local turns = tonumber(call('HGET', key('c', conv.own), 'turns')) or 0
    for _, part in ipairs({conv.own, conv.count, conv.tip, turns, messages}) do answer[#answer + 1] = part end
  else
    answer[1] = 0
  end
end
return answer
