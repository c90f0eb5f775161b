-- prefix; id, packed sighting, now, most: what was found of a model; of too many the one seen longest ago goes
local seen, when = KEYS[1] .. ':r', KEYS[1] .. ':t'
redis.call('HSET', seen, ARGV[1], ARGV[2])
redis.call('ZADD', when, ARGV[3], ARGV[1])
while redis.call('ZCARD', when) > tonumber(ARGV[4]) do
  redis.call('HDEL', seen, redis.call('ZPOPMIN', when)[1])
end
return 1
