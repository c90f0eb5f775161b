-- Arguments: place, the value as it was read, the value to write. Answer: 1; 0 if it has changed since. The lifetime
-- stays as it is.
local call, at, place, before, after = redis.call, KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local kind = call('TYPE', at).ok
if kind == 'list' then
  if call('LINDEX', at, place) ~= before then return 0 end
  call('LSET', at, place, after)
elseif kind == 'hash' then
  if call('HGET', at, place) ~= before then return 0 end
  call('HSET', at, place, after)
elseif kind == 'string' then
  if call('GET', at) ~= before then return 0 end
  call('SET', at, after, 'KEEPTTL')
else
  return 0
end
return 1
