-- Arguments: "", 0, expected, ttl, created, tenant, reference, summary, kind, lease, its value, whether it replaces
-- another, most versions, the reference of the summary in use that it was made upon or "", when that was made, and when
-- its compaction began. Answer: the summary that is stored now; nil if another worker has the lease; 0 if a
-- person has replaced the summary that it was made upon, or has had the conversation forgotten since. A summary of kind 's' is in use from now on. One of kind 'w' is prepared and waits
-- for its use, and its lease must last to the end: replacing what it took in deletes the lease.
local expected, ttl, created, tenant, ref, record, kind, lease, lease_value, replacing, most = unpack(ARGV, 3, 13)
local upon, upon_created, begun = ARGV[14], ARGV[15], tonumber(ARGV[16])
local conv = follow(expected)
local own = conv and conv.own or expected
local forgotten = not conv and redis.call('GET', key('x', own))
if forgotten and begun <= tonumber(forgotten) then return 0 end
local replaced = upon ~= '' and redis.call('GET', summary(upon, 'u'))
if replaced and replaced ~= upon_created then return 0 end
ttl = span(own, tonumber(ttl))
local at = summary(ref, kind)
local stored, rest = redis.call('GET', at), redis.call('TTL', at)
if not stored or replacing == '1' then
  local holder = lease ~= '' and redis.call('GET', key('l', lease))
  if holder and holder ~= lease_value then return false end
  if kind == 'w' and lease ~= '' and not holder then return false end
  if stored and kind == 's' then
    local z = key('z', own)
    redis.call('RPUSH', z, stored)
    redis.call('LTRIM', z, -tonumber(most), -1)
    if ttl > 0 then redis.call('EXPIRE', z, ttl) end
  end
  redis.call('SET', at, record)
  stored = record
end
local c, r, q = key('c', own), key('r', own), key('q', own)
if kind == 'w' then
  if not redis.call('LPOS', q, ref) then redis.call('RPUSH', q, ref) end
  while redis.call('LLEN', q) > 8 do redis.call('DEL', summary(redis.call('LPOP', q), 'w')) end
  if ttl > 0 then for _, k in ipairs({at, q}) do redis.call('EXPIRE', k, ttl) end end
  return stored
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
if ttl > 0 then
  redis.call('EXPIRE', at, math.max(rest, ttl))  -- forks have it as well
  for _, k in ipairs({c, r}) do redis.call('EXPIRE', k, ttl) end
end
return stored
