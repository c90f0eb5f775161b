-- Stands between the tree and record.lua: a conversation goes on although its client repeats some of its answers in
-- other words (docs/adr/0019). Its messages after the first `shared` make way for the client's; the first wording of
-- each changed answer stays in `v`. Forks keep all that they share with it.

local MOST_FORKS, MOST_COPIES = 64, 2000

local function live_as_long(at, own)
  local rest = call('PTTL', key('c', own))
  if rest > 0 then call('PEXPIRE', at, rest) end
end

local function list_fork(hash, own, seconds)  -- the newest that left its parent after this prefix, for branches.lua
  call('LREM', key('g', hash), 0, own)
  call('LPUSH', key('g', hash), own)
  call('LTRIM', key('g', hash), 0, 15)
  if seconds > 0 then prolong(key('g', hash), seconds) end
end

local function keep_forks(conv, cut, holder)  -- false, and nothing is changed, if they are too many
  local forks, copies = {}, 0
  if call('SCARD', key('b', conv.own)) > MOST_FORKS then return false end
  for _, own in ipairs(call('SMEMBERS', key('b', conv.own))) do
    local fork = open(own)
    if fork and fork.parent == conv.own and fork.base > cut then
      forks[#forks + 1] = fork
      copies = copies + fork.base - cut
    end
  end
  if copies > MOST_COPIES then return false end
  local hash = hash_at(conv, cut)
  for _, fork in ipairs(forks) do
    local first, last = cut - conv.base, fork.base - conv.base - 1
    local messages = call('LRANGE', key('m', conv.own), first, last)
    for i = #messages, 1, -1 do call('LPUSH', key('m', fork.own), messages[i]) end
    local hashes = call('GETRANGE', key('h', conv.own), 16 * first, 16 * last + 15)
    call('SET', key('h', fork.own), hashes .. call('GET', key('h', fork.own)), 'KEEPTTL')
    for _, pos in ipairs(call('HKEYS', key('v', conv.own))) do  -- the fork has what its client said, and this too
      if tonumber(pos) > cut and tonumber(pos) <= fork.base then
        call('HSETNX', key('v', fork.own), pos, call('HGET', key('v', conv.own), pos))
      end
    end
    call('HSET', key('c', fork.own), 'base', cut, 'parent', holder)
    call('SREM', key('b', conv.own), fork.own)
    call('SADD', key('b', holder), fork.own)
    live_as_long(key('b', holder), holder)
    live_as_long(key('v', fork.own), fork.own)
    list_fork(hash, fork.own, call('TTL', key('c', fork.own)))
    drop_state(fork.own)
  end
  return true
end

-- Return the conversation with its first `shared` messages only; nil if it has changed since it was looked at.
local function shortened(own, shared, count, tip, positions)
  local conv = open(own)
  if not conv or conv.count ~= count or shared >= count or hash_at(conv, shared) ~= chain(shared) then return nil end
  if conv.tip:gsub('.', function(c) return ('%02x'):format(c:byte()) end) ~= tip then return nil end
  if call('HEXISTS', key('c', own), 'stem') == 1 then return nil end
  local cut = math.max(shared, conv.base)
  -- If nothing stays of its own messages, its forks are its parent's, which outlives it.
  if not keep_forks(conv, cut, shared > conv.base and own or conv.parent) then return nil end
  for _, pos in ipairs(positions) do
    local holder = conv
    while holder and pos <= holder.base do holder = open(holder.parent) end
    local answer = holder and call('LINDEX', key('m', holder.own), pos - holder.base - 1)
    if answer then call('HSETNX', key('v', own), pos, answer) end
  end
  local dropped = call('GETRANGE', key('h', own), 16 * (cut - conv.base), -1)
  for from = 1, #dropped, 16 do
    local at = key('n', dropped:sub(from, from + 15))
    if call('GET', at) == own then call('DEL', at) end
  end
  if shared > conv.base then
    call('SET', key('h', own), call('GETRANGE', key('h', own), 0, 16 * (shared - conv.base) - 1), 'KEEPTTL')
    call('LTRIM', key('m', own), 0, shared - conv.base - 1)
  else
    local up = open(conv.parent)
    while up.base >= shared do up = open(up.parent) end
    for _, kind in ipairs({'h', 'm'}) do call('DEL', key(kind, own)) end
    call('SREM', key('b', conv.parent), own)
    call('SADD', key('b', up.own), own)
    live_as_long(key('b', up.own), up.own)
    call('HSET', key('c', own), 'base', shared, 'parent', up.own)
    list_fork(chain(shared), own, call('TTL', key('c', own)))
  end
  call('HSET', key('c', own), 'count', shared)
  drop_state(own)
  return open(own)
end
