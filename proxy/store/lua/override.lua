-- prefix; id, packed overrides or "", version: what a person set of a model takes the place of what was set before
local set, version = KEYS[1] .. ':o', KEYS[1] .. ':v'
if ARGV[2] == '' then
  redis.call('HDEL', set, ARGV[1])
else
  redis.call('HSET', set, ARGV[1], ARGV[2])
end
redis.call('SET', version, ARGV[3])
return 1
