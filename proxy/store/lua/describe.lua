-- "", 0, own -> own, {field, value, ...}; an id that was only told is resolved
local conv = follow(ARGV[3])
local own = conv and conv.own or ARGV[3]
return {own, redis.call('HGETALL', key('c', own))}
