-- "", 0, told, ttl, created, tenant, reference, summary, kind, lease, its value, whether it takes another one's place ->
-- the summary that is stored now; nil where somebody else holds the lease by now. Of the kind 's' it is in use from now
-- on; of the kind 'w' it waits, and its lease must be held to the end: who replaces what it took in ends the lease
local told, ttl, created, tenant, ref, record, kind, lease, held, replacing = unpack(ARGV, 3, 12)
local conv = follow(told)
local own = conv and conv.own or told
if redis.call('EXISTS', key('x', own)) == 1 and not conv then return false end  -- it was forgotten meanwhile
ttl = span(own, tonumber(ttl))
local at = summary(ref, kind)
local kept = redis.call('GET', at)
if not kept or replacing == '1' then
  local holder = lease ~= '' and redis.call('GET', key('l', lease))
  if holder and holder ~= held then return false end
  if kind == 'w' and lease ~= '' and not holder then return false end
  redis.call('SET', at, record)
  kept = record
end
local c, r, q = key('c', own), key('r', own), key('q', own)
if kind == 'w' then
  if not redis.call('LPOS', q, ref) then redis.call('RPUSH', q, ref) end
  while redis.call('LLEN', q) > 8 do redis.call('DEL', summary(redis.call('LPOP', q), 'w')) end
  if ttl > 0 then for _, k in ipairs({at, q}) do redis.call('EXPIRE', k, ttl) end end
  return kept
end
redis.call('LREM', q, 0, ref)
redis.call('DEL', summary(ref, 'w'))
if not redis.call('LPOS', r, ref) then
  redis.call('RPUSH', r, ref)
  redis.call('HINCRBY', c, 'summaries', 1)
  redis.call('HSET', c, 'last_summary', created)
  for _, field in ipairs({'created', 'updated'}) do redis.call('HSETNX', c, field, created) end
  redis.call('HSETNX', c, 'tenant', tenant)
end
if ttl > 0 then for _, k in ipairs({at, c, r}) do redis.call('EXPIRE', k, ttl) end end
return kept
