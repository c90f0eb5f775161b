-- Arguments: hashes, before, recipe, the argument of recall_first, the request's inner system messages (position,
-- digest). Answer: own or nil; how many messages the request shares with it; its messages; the newest summary or nil;
-- a prepared one or nil; the lease of a preparation or nil; the conversation of that lease; what thinking is bound to;
-- what was sent before the messages; when its newest turn was stored. A summary of all N messages is of no use: the newest message stays.
local recipe = ARGV[3]
local conv, k = locate(nil, 0)
if conv then conv, k = settle(conv, k) else k = 0 end

local systems = {}  -- digest -> how many other messages stand before the first of it
for at = 1, #ARGV[5], 20 do systems[ARGV[5]:sub(at + 4, at + 19)] = struct.unpack('>I4', ARGV[5], at) end
local function sent(ref, pos)  -- whether the request's own prefix holds every system message that the summary absorbed
  for at = 29, #ref, 16 do
    if (systems[ref:sub(at, at + 15)] or pos + 1) > pos then return false end
  end
  return true
end

local best, best_pos = false, 0
local function fits(ref)  -- whether it stands for a longer prefix of the chain than the best one
  local pos = position(ref)
  return pos > best_pos and pos < N and ref:sub(21, 28) == recipe and sent(ref, pos)
    and on_chain(conv, k, pos, ref:sub(5, 20)) and pos
end
local function look(own)  -- the newest of its summaries that stand for a prefix of the chain
  local conversation = states[own]
  if conversation and conversation.summaries == '0' then return end  -- without a record there may be some
  local last = -1
  repeat
    local refs = call('LRANGE', key('r', own), last - 31, last)
    for i = #refs, 1, -1 do
      local pos = fits(refs[i])
      local record = pos and call('GET', summary(refs[i]))
      if record then best, best_pos = record, pos end
    end
    last = last - 32
  until best or #refs < 32
end
if conv then look(conv.own) end
if k < N and k >= W then look(name(k + 1)) end  -- of a fork or a beginning whose turn was never recorded

-- summaries of other branches, and of turns that are not recorded yet
local lookups, holders = keys('s:' .. recipe, N - 1, math.max(W, N - NEAR, best_pos) + 1), {}
local near = #lookups
for _, own in ipairs(conv and {conv.own, conv.parent} or {}) do
  if own ~= '' then holders[#holders + 1], lookups[#lookups + 1] = own, key('l', own) end
end
local values = #lookups > 0 and mget(lookups) or {}
for i = 1, near do
  if values[i] then best, best_pos = values[i], N - i break end
end

local waiting, lease, preparing = false, false, false
local function wait_for(own)  -- its newest prepared summary; another branch may have put it into use
  local refs = call('LRANGE', key('q', own), -8, -1)
  for i = #refs, 1, -1 do
    if fits(refs[i]) then
      waiting = call('GET', summary(refs[i], 'w')) or call('GET', summary(refs[i]))
      if waiting then return end
    end
  end
end
for i, own in ipairs(holders) do
  if not waiting and not lease then
    wait_for(own)
    lease = values[near + i]
    preparing = own
  end
end
return {conv and conv.own or false, k, conv and conv.count or 0, best, waiting, lease, preparing, conv and conv.bound or false,
  conv and conv.sent or false, conv and conv.updated or false}
