-- Arguments: prefix; seconds, number of bounds, their names, then leases. Those that are still there go on.
local prefix, life, count = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local until_ = tonumber(redis.call('TIME')[1]) + life
for at = 3, 2 + count do
  local running = prefix .. ':c' .. (ARGV[at] == '' and '' or ':' .. ARGV[at])
  for lease = 3 + count, #ARGV do
    redis.call('ZADD', running, 'XX', until_, ARGV[lease])
  end
  redis.call('EXPIRE', running, life)
end
return 1
