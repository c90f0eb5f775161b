-- Arguments: prefix; id, packed observation, now, most. Stores what a request showed of a model; of too many the
-- oldest goes.
local observations, when = KEYS[1] .. ':r', KEYS[1] .. ':t'
redis.call('HSET', observations, ARGV[1], ARGV[2])
redis.call('ZADD', when, ARGV[3], ARGV[1])
while redis.call('ZCARD', when) > tonumber(ARGV[4]) do
  redis.call('HDEL', observations, redis.call('ZPOPMIN', when)[1])
end
return 1
