-- hashes, before, recipe, what the first part takes, the request's inner system messages (position and digest) -> own or nil, known, messages held, newest summary or nil, one that waits for its use or nil,
-- the lease of who is preparing one or nil, the conversation that it is for. A summary of all N messages is of no use: the newest one stays
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
  local read = states[own]
  if read and read.summaries == '0' then return end  -- whoever adds one counts it; without a record there may be some
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
if k < N and k >= W then look(name(k + 1)) end  -- of a fork or a beginning whose turn never came to its end

-- of other branches, and of what is not recorded yet
local asked, holders = keys('s:' .. recipe, N - 1, math.max(W, N - NEAR, best_pos) + 1), {}
local near = #asked
for _, own in ipairs(conv and {conv.own, conv.parent} or {}) do
  if own ~= '' then holders[#holders + 1], asked[#asked + 1] = own, key('l', own) end
end
local found = #asked > 0 and call('MGET', unpack(asked)) or {}
for i = 1, near do
  if found[i] then best, best_pos = found[i], N - i break end
end

local waiting, lease, preparing = false, false, false
local function wait_for(own)  -- its newest summary that waits for its use, another branch's use of it being the same
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
    lease = found[near + i]
    preparing = own
  end
end
return {conv and conv.own or false, k, conv and conv.count or 0, best, waiting, lease, preparing}
