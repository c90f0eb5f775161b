-- prefix: name, value, milliseconds it goes on for, 0 to give it back -> 1, or 0 where it is somebody else's by now
local at = KEYS[1] .. ':l:' .. ARGV[1]
if redis.call('GET', at) ~= ARGV[2] then return 0 end
if ARGV[3] == '0' then return redis.call('DEL', at) end
return redis.call('PEXPIRE', at, ARGV[3])
