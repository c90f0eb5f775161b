-- Arguments: KEYS[1] a credential's usage; bytes, whether an upstream has accepted it, ttl. Answer: the bytes stored
-- by now.
local total = redis.call('HINCRBY', KEYS[1], 'bytes', ARGV[1])
if ARGV[2] == '1' then redis.call('HSET', KEYS[1], 'accepted', 1) end
if ARGV[3] ~= '0' then redis.call('EXPIRE', KEYS[1], ARGV[3]) end
return total
