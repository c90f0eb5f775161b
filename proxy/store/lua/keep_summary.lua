-- "", 0, told, ttl, created, tenant, reference, summary -> the summary that is stored now
local told, ttl, created, tenant, ref, record = unpack(ARGV, 3, 8)
ttl = tonumber(ttl)
local conv = follow(told)
local own = conv and conv.own or told
local at = summary(ref)
local kept = redis.call('GET', at)
if not kept then
  redis.call('SET', at, record)
  kept = record
end
local c, r = key('c', own), key('r', own)
if not redis.call('LPOS', r, ref) then
  redis.call('RPUSH', r, ref)
  redis.call('HINCRBY', c, 'summaries', 1)
  redis.call('HSET', c, 'last_summary', created)
  for _, field in ipairs({'created', 'updated'}) do redis.call('HSETNX', c, field, created) end
  redis.call('HSETNX', c, 'tenant', tenant)
end
if ttl > 0 then for _, k in ipairs({at, c, r}) do redis.call('EXPIRE', k, ttl) end end
return kept
