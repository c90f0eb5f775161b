-- prefix: name, milliseconds, what is done under it, the taker's word of hex -> its value, or nil where somebody else holds
-- it; who says the same word again holds it already. Each taking gets a higher number, so a holder that was thought dead
-- is told from the one that took its place
local at = KEYS[1] .. ':l:' .. ARGV[1]
local held = redis.call('GET', at)
if held then return held:match('^%d+%-(%x+):') == ARGV[4] and held end
local value = redis.call('INCR', KEYS[1] .. ':f') .. '-' .. ARGV[4] .. ':' .. ARGV[3]
redis.call('EXPIRE', KEYS[1] .. ':f', 604800)
redis.call('SET', at, value, 'PX', ARGV[2])
return value
