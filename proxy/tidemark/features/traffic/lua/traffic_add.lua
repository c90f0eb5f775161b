-- Arguments: prefix; worker, number of its batch, seconds that the number is stored, levels, then for each level its
-- name, minutes of a period, seconds that it is stored; then minute, field and amount, repeated. Adds figures to the
-- periods of each level, unless this batch was added before; answers whether it did.
local number_key = KEYS[1] .. ':b:' .. ARGV[1]
local last = redis.call('GET', number_key)
if last and tonumber(last) >= tonumber(ARGV[2]) then
  return 0
end
local first = 5 + 3 * tonumber(ARGV[4])
local touched = {}
for level = 5, first - 1, 3 do
  local minutes, seconds = tonumber(ARGV[level + 1]), ARGV[level + 2]
  local prefix = KEYS[1] .. ':' .. ARGV[level] .. ':'
  for place = first, #ARGV, 3 do
    local key = prefix .. string.format('%d', math.floor(tonumber(ARGV[place]) / minutes))
    redis.call('HINCRBY', key, ARGV[place + 1], ARGV[place + 2])
    touched[key] = seconds
  end
end
for key, seconds in pairs(touched) do
  redis.call('EXPIRE', key, seconds)
end
redis.call('SET', number_key, ARGV[2], 'EX', ARGV[3])
return 1
