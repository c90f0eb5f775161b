-- Arguments: prefix; worker, number of its batch, seconds that the number is stored, seconds that a day is stored; then
-- day, field and amount, repeated. Adds figures to days, unless this batch was added before; answers whether it did.
local number_key = KEYS[1] .. ':b:' .. ARGV[1]
local last = redis.call('GET', number_key)
if last and tonumber(last) >= tonumber(ARGV[2]) then
  return 0
end
local touched = {}
for place = 5, #ARGV, 3 do
  local key = KEYS[1] .. ':d:' .. ARGV[place]
  redis.call('HINCRBY', key, ARGV[place + 1], ARGV[place + 2])
  touched[key] = true
end
for key, _ in pairs(touched) do
  redis.call('EXPIRE', key, ARGV[4])
end
redis.call('SET', number_key, ARGV[2], 'EX', ARGV[3])
return 1
