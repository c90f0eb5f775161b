-- hashes, before, recipe -> own or nil, known, messages held, newest summary or nil, one that waits for its use or nil,
-- the lease of who is preparing one or nil, the conversation that it is for. A summary of all N messages is of no use: the newest one stays
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

local waiting, lease, preparing = false, false, false
local function wait_for(own)  -- its newest summary that waits for its use, another branch's use of it being the same
  local refs = redis.call('LRANGE', key('q', own), -8, -1)
  for i = #refs, 1, -1 do
    local pos = position(refs[i])
    if pos > best_pos and pos < N and refs[i]:sub(21) == recipe and on_chain(conv, k, pos, refs[i]:sub(5, 20)) then
      waiting = redis.call('GET', summary(refs[i], 'w')) or redis.call('GET', summary(refs[i]))
      if waiting then return end
    end
  end
end
if conv then
  for _, own in ipairs({conv.own, conv.parent}) do
    if own ~= '' and not waiting and not lease then
      wait_for(own)
      lease = redis.call('GET', key('l', own))
      preparing = own
    end
  end
end
return {conv and conv.own or false, k, conv and conv.count or 0, best, waiting, lease, preparing}
