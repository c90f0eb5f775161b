-- Arguments: "", 0, own, ttl, created, tenant, reference, summary, the record that must stand there now or "", most
-- versions, seconds of the mark. The summary replaces the one that is stored for its prefix, which stays as an earlier
-- version. Answer: 1; 0 if the conversation was forgotten meanwhile, -1 if another record stands there.
local own, ttl, created, tenant, ref, record, present, most, mark_seconds = unpack(ARGV, 3, 11)
local conv = follow(own)
own = conv and conv.own or own
if redis.call('EXISTS', key('x', own)) == 1 and not conv then return 0 end
ttl = span(own, tonumber(ttl))
local at, c, r, z = summary(ref), key('c', own), key('r', own), key('z', own)
local stored, rest = redis.call('GET', at), redis.call('TTL', at)
if present ~= '' and stored ~= present then return -1 end
redis.call('SET', at, record)
if stored then
  redis.call('RPUSH', z, stored)
  redis.call('LTRIM', z, -tonumber(most), -1)
end
-- A summary that is being made upon the replaced text must not come into use: keep_summary.lua looks for this mark.
redis.call('SET', summary(ref, 'u'), created, 'EX', mark_seconds)

local function drop_prepared(of)  -- what was prepared upon the replaced text, and the lease of what is being prepared
  for _, waiting in ipairs(redis.call('LRANGE', key('q', of), 0, -1)) do redis.call('DEL', summary(waiting, 'w')) end
  for _, kind in ipairs({'q', 'l'}) do redis.call('DEL', key(kind, of)) end
end
drop_prepared(own)
if conv and conv.base >= position(ref) then drop_prepared(conv.parent) end
for _, child in ipairs(redis.call('SMEMBERS', key('b', own))) do
  local branch = open(child)
  if branch and branch.parent == own and branch.base >= position(ref) then drop_prepared(child) end
end

if not redis.call('LPOS', r, ref) then
  redis.call('RPUSH', r, ref)
  redis.call('HINCRBY', c, 'summaries', 1)
end
redis.call('HSET', c, 'last_summary', created)
for _, field in ipairs({'created', 'updated'}) do redis.call('HSETNX', c, field, created) end
redis.call('HSETNX', c, 'tenant', tenant)
if ttl > 0 then
  redis.call('EXPIRE', at, math.max(rest, ttl))  -- forks have it as well
  for _, k in ipairs({c, r, z}) do redis.call('EXPIRE', k, ttl) end
end
return 1
