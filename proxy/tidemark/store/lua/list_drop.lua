-- Arguments: KEYS[1] a list, KEYS[2] what was deleted from it; id, time, and for how many seconds the deletion is
-- remembered: for longer than a worker waits before it writes a use (list_add.lua). A later use stays listed.
local used = redis.call('ZSCORE', KEYS[1], ARGV[1])
if used and tonumber(used) <= tonumber(ARGV[2]) then redis.call('ZREM', KEYS[1], ARGV[1]) end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[2] - ARGV[3])
redis.call('EXPIRE', KEYS[2], ARGV[3])
