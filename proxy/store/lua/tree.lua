-- Put before each of the other scripts: the tree that conversations form, and how a chain finds its place in it.
--
-- A conversation is a branch. It holds the messages after its `base` itself, the earlier ones are its parent's. Its
-- id is the hash of the first message of its own, so from any branch the next one is found by name, without an index.
-- Equal hashes mean equal prefixes, so agreement with a chain is monotone and is found by bisection.
--
-- Only the family's prefix is a declared key: all others begin with it, so on a cluster they are in the same slot.
-- Nothing here is newer than Redis 6.0.6 (LPOS).

local P = KEYS[1]
local H, W = ARGV[1], tonumber(ARGV[2])  -- hashes of positions W + 1 to N of the chain that is sent
local N = W + #H / 16
local NEAR = 64                          -- so many prefixes back a tip is looked for

local function key(kind, own) return P .. ':' .. kind .. ':' .. own end

local function chain(pos)
  local from = 16 * (pos - W - 1)
  return H:sub(from + 1, from + 16)
end

local function name(pos)  -- of the conversation that begins at this position: conversation_id in core/prefix.py
  return (chain(pos):sub(1, 8):gsub('.', function(c) return string.format('%02x', c:byte()) end))
end

local opened = {}
local function open(own)  -- nil where there is none, or where parts of it are gone
  if not own or own == '' then return nil end
  if opened[own] == nil then
    local c = redis.call('HMGET', key('c', own), 'base', 'count', 'parent', 'touched')
    local conv = false
    if c[1] then
      local held = tonumber(c[2]) - tonumber(c[1])
      if redis.call('STRLEN', key('h', own)) == 16 * held and redis.call('LLEN', key('m', own)) == held then
        conv = {own = own, parent = c[3], touched = c[4]}
        conv.base, conv.count = tonumber(c[1]), tonumber(c[2])
      end
    end
    opened[own] = conv
  end
  return opened[own] or nil
end

local function follow(own)
  if not own or own == '' then return nil end
  return open(own) or open(redis.call('GET', key('a', own)))
end

local function span(own, ttl)  -- seconds that a conversation's parts are kept: unused, and at most; 0 for good
  local dies = redis.call('HGET', key('c', own), 'dies')
  if not dies then return ttl end
  local left = math.max(1, math.ceil(tonumber(dies) - tonumber(redis.call('TIME')[1])))
  return ttl > 0 and math.min(ttl, left) or left
end

local function hash_at(conv, pos)
  while conv and pos <= conv.base do conv = open(conv.parent) end
  if not conv or pos > conv.count then return nil end
  local from = 16 * (pos - conv.base - 1)
  return redis.call('GETRANGE', key('h', conv.own), from, from + 15)
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

local function locate(told, known)  -- any conversation that holds a prefix of the chain
  if N == 0 then return told and follow(told), 0 end
  local at = math.max(known, 1)
  local conv = told and standing(told, at)
  if conv then return conv, at end
  for pos = N, math.max(W, N - NEAR) + 1, -1 do
    local own = redis.call('GET', key('n', chain(pos)))
    conv = own and standing(own, pos)
    if conv then return conv, pos end
  end
  if W == 0 then return standing(name(1), 1), 1 end
end

local function settle(conv, k)  -- the one that shares most of the chain: up to who holds k, then down by name
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
local function summary(ref, kind) return P .. ':' .. (kind or 's') .. ':' .. ref:sub(21) .. ':' .. ref:sub(5, 20) end
