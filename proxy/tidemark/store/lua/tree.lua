-- Stands before most other scripts: the tree that conversations form, and the place of a chain in it.  A conversation
-- is a branch. It has the messages after its `base` itself; the earlier ones are its parent's. Its id is the hash of
-- its own first message, so a branch leads to the next one by name, without an index. Equal hashes mean equal
-- prefixes, so agreement with a chain is monotone and bisection finds its end.  Only the family's prefix is a
-- declared key: all others begin with it, so on a cluster they are in the same slot (docs/adr/0024). Nothing here is newer than Redis
-- 6.0.6 (LPOS).

local P = KEYS[1]
local H, W = ARGV[1], tonumber(ARGV[2])  -- hashes of positions W + 1 to N of the chain that is sent
local N = W + #H / 16
local NEAR = 64                          -- how many prefixes back a tip is searched
local NEWEST = 3                         -- how many are read one by one: a turn adds two or three; the others together
local call = redis.call

local function key(kind, own) return P .. ':' .. kind .. ':' .. own end

local function chain(pos)
  local from = 16 * (pos - W - 1)
  return H:sub(from + 1, from + 16)
end

local function keys(kind, from, to)  -- of these positions, down
  local names, beginning = {}, key(kind, '')
  for pos = from, to, -1 do names[#names + 1] = beginning .. chain(pos) end
  return names
end

local function hex(hash) return ('%02x%02x%02x%02x%02x%02x%02x%02x'):format(hash:byte(1, 8)) end
local function name(pos) return hex(chain(pos)) end  -- of the conversation that begins here: core/conversation/prefix.py

local time
local function now()
  time = time or tonumber(call('TIME')[1])
  return time
end

-- A script reads nothing twice. After a write it calls `drop_state` or sets `aliases`.
local states, aliases = {}, {}
local function drop_state(own) states[own] = nil end

local function state(own)  -- a conversation's record; `whole` is whether all its messages are stored
  local c = states[own]
  if c then return c end
  local values = call('HMGET', key('c', own), 'base', 'count', 'parent', 'touched', 'summaries', 'bound', 'sent', 'updated')
  c = {own = own, base = tonumber(values[1]), count = tonumber(values[2]), parent = values[3], touched = values[4],
    summaries = values[5], bound = values[6], sent = values[7], updated = values[8]}
  if c.base then
    local stored = call('LLEN', key('m', own))
    -- a wrong count: messages and hashes give it, if they agree; the next turn stores it
    if c.count ~= c.base + stored and stored > 0 and call('STRLEN', key('h', own)) == 16 * stored then
      c.count, c.mended = c.base + stored, true
    end
    c.count = c.count or 0
    local own_count = c.count - c.base
    -- the last hash and one byte that must not exist: so this checks the length too
    c.tip = call('GETRANGE', key('h', own), math.max(0, 16 * own_count - 16), 16 * own_count)
    c.whole = #c.tip == math.min(16, 16 * own_count) and stored == own_count
  end
  states[own] = c
  return c
end

local function open(own)  -- nil if there is none, or if parts of it are gone
  if not own or own == '' then return nil end
  local conv = state(own)
  return conv.whole and conv or nil
end

local function alias_of(own)  -- the conversation that took the place of an id that a client was told
  if aliases[own] == nil then aliases[own] = call('GET', key('a', own)) end
  return aliases[own]
end

local function follow(own)
  if not own or own == '' then return nil end
  return open(own) or open(alias_of(own))
end

local function bounded(ttl, dies)  -- ttl, but no longer than until `dies`, and at least one second; 0 for no limit
  if not dies then return ttl end
  local remaining = math.max(1, math.ceil(tonumber(dies) - now()))
  return ttl > 0 and math.min(ttl, remaining) or remaining
end
-- ttl, but at least until `lent`: so long a fork lives that has its first messages here; 0 for no limit
local function with_lent(ttl, lent)
  lent = tonumber(lent or 1)
  if ttl == 0 or lent == 0 then return 0 end
  return math.max(ttl, lent - now())
end
local function span(own, ttl)  -- lifetime in seconds of a conversation's parts; `idle` is that of its last request's model
  local dies, idle, lent = unpack(call('HMGET', key('c', own), 'dies', 'idle', 'lent'))
  return bounded(with_lent(tonumber(idle or ttl), lent), dies)
end
local function prolong(at, seconds)  -- never shorten: others need it as well
  local rest = call('TTL', at)
  if rest < seconds then call('EXPIRE', at, seconds) end
end

local function hash_at(conv, pos)
  while conv and pos <= conv.base do conv = open(conv.parent) end
  if not conv or pos > conv.count then return nil end
  if pos == conv.count then return conv.tip end
  local from = 16 * (pos - conv.base - 1)
  return call('GETRANGE', key('h', conv.own), from, from + 15)
end

local function standing(own, pos)
  local conv = follow(own)
  if conv and hash_at(conv, pos) == chain(pos) then return conv end
end

local function agree(conv, k)  -- how many messages both share, given that they share k
  local high = math.min(N, conv.count)
  if high <= k then return k end
  if hash_at(conv, high) == chain(high) then return high end
  while high - k > 1 do
    local middle = math.floor((k + high) / 2)
    if hash_at(conv, middle) == chain(middle) then k = middle else high = middle end
  end
  return k
end

local function locate(hint, shared)  -- any conversation that has a prefix of the chain
  if N == 0 then return hint and follow(hint), 0 end
  local at = math.max(shared, 1)
  local conv = hint and standing(hint, at)
  if conv then return conv, at end
  local low = math.max(W, N - NEAR) + 1
  local apart = math.max(low, N - NEWEST + 1)
  for pos = N, apart, -1 do
    local own = call('GET', key('n', chain(pos)))
    conv = own and standing(own, pos)
    if conv then return conv, pos end
  end
  if apart > low then
    for i, own in ipairs(mget(keys('n', apart - 1, low))) do
      conv = own and standing(own, apart - i)
      if conv then return conv, apart - i end
    end
  end
  if W == 0 then return standing(name(1), 1), 1 end
end

local function settle(conv, k)  -- the one that shares most of the chain: up to the one that has k, then down by name
  k = agree(conv, k)
  while k <= conv.base and open(conv.parent) do
    conv = open(conv.parent)
    k = agree(conv, k)
  end
  while k < N and k < conv.count do
    local child = follow(name(k + 1))
    if not child or child.base ~= k or hash_at(child, k + 1) ~= chain(k + 1) then break end
    conv = child
    k = agree(conv, k + 1)
  end
  return conv, k
end

local function on_chain(conv, k, pos, prefix)
  if pos > W then return pos <= N and chain(pos) == prefix end
  return conv and pos <= k and hash_at(conv, pos) == prefix
end

local function position(ref) return (struct.unpack('>I4', ref)) end
-- The key of the summary of a reference: position, prefix, recipe, then the digests of absorbed system messages
local function summary(ref, kind)
  local variant = #ref > 28 and redis.sha1hex(ref:sub(29)) or ''
  return P .. ':' .. (kind or 's') .. ':' .. ref:sub(21, 28) .. variant .. ':' .. ref:sub(5, 20)
end
