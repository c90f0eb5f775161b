-- prefix; id, before, after, version: what a person set of a model takes the place of what was set before, each packed or
-- "" for nothing. 0, and nothing is written, where somebody else has set something else meanwhile. The epoch stays.
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
