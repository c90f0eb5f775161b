-- key; most, ttl, field, before, after, field, before, after ...: keep what was learned, where every field still holds what
-- it was learned upon ("" is nothing, "*" whatever is there); else keep nothing and tell what they hold. Of new fields no
-- more than fit, but the one of a model itself, which ends with "*", always has room: what does not fit goes by it.
local held, same = {}, true
for i = 3, #ARGV, 3 do
  local value = redis.call('HGET', KEYS[1], ARGV[i]) or ''
  held[#held + 1] = value
  same = same and (ARGV[i + 1] == '*' or ARGV[i + 1] == value)
end
if not same then return held end
for i = 3, #ARGV, 3 do
  local own = ARGV[i]:sub(-1) == '*'
  if own or redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 or redis.call('HLEN', KEYS[1]) < tonumber(ARGV[1]) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
  end
end
if tonumber(ARGV[2]) > 0 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return {}
