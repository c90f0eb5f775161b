-- hashes, before, told, known, ttl, age, created, tenant, owner, model, tokens, turn, its client's name, the head it goes
-- on from, its lease, the lease's value, n, n x (digest, system message), messages known + 1 to N -> own; nil where
-- earlier messages are gone, so that all must be sent, or where the conversation was forgotten meanwhile
local told, known, ttl, age, created, tenant, owner, model, total, turn = unpack(ARGV, 3, 12)
local called, head, lease, held = unpack(ARGV, 13, 16)
known, ttl, age = tonumber(known), tonumber(ttl), tonumber(age)
local systems = tonumber(ARGV[17])
local first = 18 + 2 * systems  -- of the messages known + 1 to N
local now = tonumber(redis.call('TIME')[1])

for _, own in ipairs({told, head}) do
  local forgotten = own ~= '' and redis.call('GET', key('x', own))
  if forgotten and tonumber(created) <= tonumber(forgotten) then return false end
end
local holder = lease ~= '' and redis.call('GET', key('l', lease))
local lost = holder and holder ~= held  -- somebody else's turn: this one must not come in between

local conv, k = locate(told, known)
if conv then conv, k = settle(conv, k) else k = 0 end
if k < known then return false end  -- something is gone: all of it is needed
if known > 0 and conv and redis.call('HEXISTS', key('c', conv.own), 'stem') == 1 then return false end  -- the same

local function taken(own) return open(own) or redis.call('EXISTS', key('a', own)) == 1 end
local function free_name()
  if told ~= '' and not taken(told) then return told end
  for pos = k + 1, N do
    if not taken(name(pos)) then return name(pos) end
  end
  return redis.sha1hex(H .. created):sub(1, 16)
end
local function alias(from, to)
  if from ~= '' and from ~= to and not taken(from) then
    redis.call('SET', key('a', from), to)
    redis.call('SADD', key('e', to), from)
    for _, kept in ipairs(ttl > 0 and {key('a', from), key('e', to)} or {}) do redis.call('EXPIRE', kept, ttl) end
  end
end
local function inherit(from, to)
  for _, kind in ipairs({'r', 'q'}) do
    for _, ref in ipairs(redis.call('LRANGE', key(kind, from), 0, -1)) do
      if on_chain(conv, k, position(ref), ref:sub(5, 20)) and not redis.call('LPOS', key(kind, to), ref) then
        redis.call('RPUSH', key(kind, to), ref)
      end
    end
  end
end

local own, record
if conv and (k == N or (k == conv.count and not lost)) then
  own, record = conv.own, key('c', conv.own)
  redis.call('HDEL', record, 'stem')
  redis.call('HSETNX', record, 'owner', owner)  -- one of the time before there were lists
else
  own = free_name()
  record = key('c', own)
  redis.call('DEL', key('h', own), key('m', own))  -- what is left of one that lost its parts
  redis.call('HSET', record, 'base', k, 'count', k, 'parent', conv and conv.own or '',
    'tenant', tenant, 'owner', owner, 'touched', conv and conv.touched or now)
  redis.call('HSETNX', record, 'created', created)
  if age > 0 then redis.call('HSETNX', record, 'dies', redis.call('HGET', record, 'created') + age) end
  if conv then
    redis.call('SADD', key('b', conv.own), own)
    local left = span(conv.own, ttl)
    if left > 0 then redis.call('EXPIRE', key('b', conv.own), left) end
  end
  opened[own] = nil
  if conv then inherit(conv.own, own) end
  if k < N then alias(name(k + 1), own) end
end
if told ~= '' and told ~= own and not open(told) then
  inherit(told, own)
  alias(told, own)
end

if k < N then
  redis.call('APPEND', key('h', own), H:sub(16 * (k - W) + 1))
  for from = first + k - known, first + N - known - 1, 1000 do  -- unpack has a limit
    redis.call('RPUSH', key('m', own), unpack(ARGV, from, math.min(from + 999, first + N - known - 1)))
  end
  redis.call('HSET', record, 'count', N, 'tokens', total)
end
for i = 18, first - 1, 2 do redis.call('HSETNX', key('y', own), ARGV[i], ARGV[i + 1]) end

local fresh = true
for _, entry in ipairs(redis.call('LRANGE', key('t', own), -8, -1)) do
  if entry:sub(1, 16) == turn:sub(1, 16) then fresh = false end
end
if fresh then
  redis.call('RPUSH', key('t', own), turn)
  redis.call('HINCRBY', record, 'turns', 1)
  redis.call('HSET', record, 'updated', created, 'model', model)
end
if called ~= '' then
  redis.call('HSET', record, 'name', called)
  local at = redis.call('GET', P .. ':d')
  -- with a lease that has run out, others may have gone on from the same place: then the name is theirs
  local leads = not at or not open(at) or (at == head and holder == held)
  if lease == '' or (not lost and leads) then redis.call('SET', P .. ':d', own) end
  if ttl > 0 then redis.call('EXPIRE', P .. ':d', ttl) end
end
if holder == held then redis.call('DEL', key('l', lease)) end
redis.call('HSET', record, 'summaries', redis.call('LLEN', key('r', own)))
for pos = math.max(1, N - 1, W + 1), N do redis.call('SET', key('n', chain(pos)), own) end

local function keep(of)
  local seconds = span(of, ttl)
  if seconds <= 0 then return end
  for _, kind in ipairs({'c', 'h', 'm', 't', 'y', 'r', 'q', 'b'}) do redis.call('EXPIRE', key(kind, of), seconds) end
  return seconds
end
local seconds = keep(own)
if seconds then
  for pos = math.max(1, N - 1, W + 1), N do redis.call('EXPIRE', key('n', chain(pos)), seconds) end
  local placed = redis.call('HMGET', record, 'touched', 'parent')
  if now - tonumber(placed[1]) >= math.min(seconds / 8, 86400) then  -- what it rests on, about once a day
    redis.call('HSET', record, 'touched', now)
    for _, ref in ipairs(redis.call('LRANGE', key('r', own), 0, -1)) do redis.call('EXPIRE', summary(ref), seconds) end
    local up = open(placed[2])
    while up do keep(up.own) up = open(up.parent) end
  end
end
return own
