-- Arguments: prefix; name of a level, first and last period, whose figures (empty: those of all requests), first minute.
-- Answers the periods that have such figures, each with its number and its fields, then the models and the tenants with
-- figures of their own from that minute on.
local periods = {}
for period = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  local name = string.format('%d', period)
  local fields = redis.call('HGETALL', KEYS[1] .. ':' .. ARGV[1] .. ':' .. name .. ARGV[4])
  if #fields > 0 then
    periods[#periods + 1] = {name, fields}
  end
end
local names = {periods}
for _, kind in ipairs({'m', 't'}) do
  names[#names + 1] = redis.call('ZRANGEBYSCORE', KEYS[1] .. ':n:' .. kind, ARGV[5], '+inf')
end
return names
