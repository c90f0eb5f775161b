-- hashes, before, told, known, ttl, created, tenant, model, tokens, turn, index, n, n x (digest, system message),
-- messages known + 1 to N -> own; nil where earlier messages are gone, so that all must be sent
local told, known, ttl, created, tenant, model, total, turn, index = unpack(ARGV, 3, 11)
known, ttl = tonumber(known), tonumber(ttl)
local systems = tonumber(ARGV[12])
local first = 13 + 2 * systems  -- of the messages known + 1 to N
local now = tonumber(redis.call('TIME')[1])

local conv, k = locate(told, known)
if conv then conv, k = settle(conv, k) else k = 0 end
if k < known then return false end  -- something is gone: all of it is needed

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
    if ttl > 0 then redis.call('EXPIRE', key('a', from), ttl) end
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
if conv and (k == N or k == conv.count) then
  own, record = conv.own, key('c', conv.own)
else
  own = free_name()
  record = key('c', own)
  redis.call('DEL', key('h', own), key('m', own))  -- what is left of one that lost its parts
  redis.call('HSET', record, 'base', k, 'count', k, 'parent', conv and conv.own or '',
    'tenant', tenant, 'touched', conv and conv.touched or now)
  redis.call('HSETNX', record, 'created', created)
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
for i = 13, first - 1, 2 do redis.call('HSETNX', key('y', own), ARGV[i], ARGV[i + 1]) end

local fresh = true
for _, entry in ipairs(redis.call('LRANGE', key('t', own), -8, -1)) do
  if entry:sub(1, 16) == turn:sub(1, 16) then fresh = false end
end
if fresh then
  redis.call('RPUSH', key('t', own), turn)
  redis.call('HINCRBY', record, 'turns', 1)
  redis.call('HSET', record, 'updated', created, 'model', model)
  if index ~= '' then redis.call('ZADD', index, created, P:sub(5, 36) .. own) end
end
redis.call('HSET', record, 'summaries', redis.call('LLEN', key('r', own)))
for pos = math.max(1, N - 1, W + 1), N do redis.call('SET', key('n', chain(pos)), own) end

if ttl > 0 then
  local function keep(of)
    for _, kind in ipairs({'c', 'h', 'm', 't', 'y', 'r', 'q'}) do redis.call('EXPIRE', key(kind, of), ttl) end
  end
  for pos = math.max(1, N - 1, W + 1), N do redis.call('EXPIRE', key('n', chain(pos)), ttl) end
  keep(own)
  local placed = redis.call('HMGET', record, 'touched', 'parent')
  if now - tonumber(placed[1]) >= math.min(ttl / 8, 86400) then  -- what it rests on, about once a day
    redis.call('HSET', record, 'touched', now)
    for _, ref in ipairs(redis.call('LRANGE', key('r', own), 0, -1)) do redis.call('EXPIRE', summary(ref), ttl) end
    local up = open(placed[2])
    while up do keep(up.own) up = open(up.parent) end
  end
  if index ~= '' then
    redis.call('ZREMRANGEBYSCORE', index, '-inf', '(' .. (tonumber(created) - ttl))
    redis.call('EXPIRE', index, ttl)
  end
end
return own
