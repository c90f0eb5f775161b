-- Arguments: "", 0, own, ttl, created, tenant, reference, summary. The summary replaces the one that is stored for
-- its prefix. Prepared summaries and the lease of a preparation are deleted, since they took in what it replaces.
local own, ttl, created, tenant, ref, record = unpack(ARGV, 3, 8)
local conv = follow(own)
own = conv and conv.own or own
if redis.call('EXISTS', key('x', own)) == 1 and not conv then return 0 end  -- it was forgotten meanwhile
ttl = span(own, tonumber(ttl))
local at, c, r = summary(ref), key('c', own), key('r', own)
redis.call('SET', at, record)
for _, waiting in ipairs(redis.call('LRANGE', key('q', own), 0, -1)) do redis.call('DEL', summary(waiting, 'w')) end
redis.call('DEL', key('q', own), key('l', own))
if not redis.call('LPOS', r, ref) then
  redis.call('RPUSH', r, ref)
  redis.call('HINCRBY', c, 'summaries', 1)
end
redis.call('HSET', c, 'last_summary', created)
for _, field in ipairs({'created', 'updated'}) do redis.call('HSETNX', c, field, created) end
redis.call('HSETNX', c, 'tenant', tenant)
if ttl > 0 then for _, k in ipairs({at, c, r}) do redis.call('EXPIRE', k, ttl) end end
return 1
