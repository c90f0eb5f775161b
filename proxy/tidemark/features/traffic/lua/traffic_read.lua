-- Arguments: prefix; name of a level, first and last period. Answers the periods that have figures, each with its number
-- and its fields.
local periods = {}
for period = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  local name = string.format('%d', period)
  local fields = redis.call('HGETALL', KEYS[1] .. ':' .. ARGV[1] .. ':' .. name)
  if #fields > 0 then
    periods[#periods + 1] = {name, fields}
  end
end
return periods
