-- Arguments: key; most, ttl, field, before, after, field, before, after ... Store each "after" if every field
-- still has its "before" ("" is nothing, "*" any value), and answer {}; else store nothing and answer the fields'
-- values. New fields are stored up to the bound; the one of a model itself, which ends with "*", always is.
local stored, same = {}, true
for i = 3, #ARGV, 3 do
  local value = redis.call('HGET', KEYS[1], ARGV[i]) or ''
  stored[#stored + 1] = value
  same = same and (ARGV[i + 1] == '*' or ARGV[i + 1] == value)
end
if not same then return stored end
for i = 3, #ARGV, 3 do
  local own = ARGV[i]:sub(-1) == '*'
  if own or redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 or redis.call('HLEN', KEYS[1]) < tonumber(ARGV[1]) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
  end
end
if tonumber(ARGV[2]) > 0 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return {}
