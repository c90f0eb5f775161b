-- Arguments: prefix; first and last day. Answers the days that have figures, each with its number and its fields.
local days = {}
for day = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local name = string.format('%d', day)
  local fields = redis.call('HGETALL', KEYS[1] .. ':d:' .. name)
  if #fields > 0 then
    days[#days + 1] = {name, fields}
  end
end
return days
