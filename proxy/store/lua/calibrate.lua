-- key; most, ttl, field, value, field, value ...: keep the newest values. Of new fields no more than fit, but the one of
-- a model itself, which ends with "*", always has room: what does not fit goes by it.
for i = 3, #ARGV, 2 do
  local own = ARGV[i]:sub(-1) == '*'
  if own or redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 or redis.call('HLEN', KEYS[1]) < tonumber(ARGV[1]) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
if tonumber(ARGV[2]) > 0 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return 1
