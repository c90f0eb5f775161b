-- Arguments: prefix: name, value, milliseconds, 0 to release it. Answer: 1, or 0 if another worker has the lease.
local at = KEYS[1] .. ':l:' .. ARGV[1]
if redis.call('GET', at) ~= ARGV[2] then return 0 end
if ARGV[3] == '0' then return redis.call('DEL', at) end
return redis.call('PEXPIRE', at, ARGV[3])
