-- Arguments: prefix; id, before, after, version. A model's settings change from "before" to "after", each packed or
-- "" for none. Answer: 0 if they are not "before" any more, and nothing is written. The epoch stays.
local set, version = KEYS[1] .. ':o', KEYS[1] .. ':v'
if (redis.call('HGET', set, ARGV[1]) or '') ~= ARGV[2] then return 0 end
if ARGV[3] == '' then
  redis.call('HDEL', set, ARGV[1])
else
  redis.call('HSET', set, ARGV[1], ARGV[3])
end
local epoch = (redis.call('GET', version) or ARGV[4]):match('^[^:]*')
redis.call('SET', version, epoch .. ':' .. ARGV[4])
return 1
