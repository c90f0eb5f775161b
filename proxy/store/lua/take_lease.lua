-- prefix: name, milliseconds, what is done under it -> its value, or nil where somebody else holds it. Each taking gets
-- a higher number, so a holder that was thought dead is told from the one that took its place
local at = KEYS[1] .. ':l:' .. ARGV[1]
if redis.call('EXISTS', at) == 1 then return false end
local value = redis.call('INCR', KEYS[1] .. ':f') .. ':' .. ARGV[3]
redis.call('EXPIRE', KEYS[1] .. ':f', 604800)
redis.call('SET', at, value, 'PX', ARGV[2])
return value
