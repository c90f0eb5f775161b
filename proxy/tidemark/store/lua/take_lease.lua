-- Arguments: prefix: name, milliseconds, purpose, the caller's token of hex. Answer: the lease's value, or nil if
-- another worker has it; a caller that repeats its token has it already. The number grows with each lease, so a
-- worker that only seemed dead is told apart from the one after it.
local at = KEYS[1] .. ':l:' .. ARGV[1]
local current = redis.call('GET', at)
if current then return current:match('^%d+%-(%x+):') == ARGV[4] and current end
local value = redis.call('INCR', KEYS[1] .. ':f') .. '-' .. ARGV[4] .. ':' .. ARGV[3]
redis.call('EXPIRE', KEYS[1] .. ':f', 604800)
redis.call('SET', at, value, 'PX', ARGV[2])
return value
