-- hashes, before, recipe -> own or nil, known, messages held, newest summary or nil, one that waits for its use or nil,
-- the lease of who is preparing one or nil. A summary of all N messages is of no use: the newest one stays
local recipe = ARGV[3]
local conv, k = locate(nil, 0)
if conv then conv, k = settle(conv, k) else k = 0 end

local best, best_pos = false, 0
local function look(own)  -- the newest of its summaries that stand for a prefix of the chain
  local last = -1
  repeat
    local refs = redis.call('LRANGE', key('r', own), last - 31, last)
    for i = #refs, 1, -1 do
      local pos = position(refs[i])
      if pos > best_pos and pos < N and refs[i]:sub(21) == recipe and on_chain(conv, k, pos, refs[i]:sub(5, 20)) then
        local record = redis.call('GET', summary(refs[i]))
        if record then best, best_pos = record, pos end
      end
    end
    last = last - 32
  until best or #refs < 32
end
if conv then look(conv.own) end
if k < N and k >= W then look(name(k + 1)) end  -- of a fork or a beginning whose turn never came to its end
for pos = N - 1, math.max(W, N - NEAR, best_pos) + 1, -1 do  -- of other branches, and of what is not recorded yet
  local record = redis.call('GET', P .. ':s:' .. recipe .. ':' .. chain(pos))
  if record then best, best_pos = record, pos break end
end

local waiting, lease = false, false
if conv then
  local refs = redis.call('LRANGE', key('q', conv.own), -8, -1)
  for i = #refs, 1, -1 do
    local pos = position(refs[i])
    if pos > best_pos and pos < N and refs[i]:sub(21) == recipe and on_chain(conv, k, pos, refs[i]:sub(5, 20)) then
      waiting = redis.call('GET', summary(refs[i], 'w'))
      if waiting then break end
    end
  end
  lease = redis.call('GET', key('l', conv.own))
end
return {conv and conv.own or false, k, conv and conv.count or 0, best, waiting, lease}
