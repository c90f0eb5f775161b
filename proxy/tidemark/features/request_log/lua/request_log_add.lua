-- Arguments: prefix; worker, number of its batch, seconds that the number is stored, most requests, milliseconds before
-- which requests leave, seconds that the log is stored (0: no limit); then owner, number of requests, time of the newest
-- and packed requests, repeated. Adds entries, unless this batch was added before or its tenant was erased since, and
-- removes the oldest; answers how many requests the log has.
local stream, count_key = KEYS[1] .. ':s', KEYS[1] .. ':n'
local number_key = KEYS[1] .. ':b:' .. ARGV[1]
local last = redis.call('GET', number_key)
if last and tonumber(last) >= tonumber(ARGV[2]) then
  return redis.call('GET', count_key)
end
redis.call('SET', number_key, ARGV[2], 'EX', ARGV[3])
local total = redis.call('EXISTS', stream) == 1 and tonumber(redis.call('GET', count_key) or '0') or 0
for place = 7, #ARGV, 4 do
  local erased = redis.call('GET', KEYS[1] .. ':x:' .. redis.sha1hex(ARGV[place]))
  if not erased or tonumber(ARGV[place + 2]) > tonumber(erased) then
    redis.call('XADD', stream, '*', 'o', ARGV[place], 'c', ARGV[place + 1], 'f', ARGV[place + 3])
    total = total + tonumber(ARGV[place + 1])
  end
end
local most, first = tonumber(ARGV[4]), tonumber(ARGV[5])
while total > 0 do
  local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  if not oldest then
    total = 0
    break
  end
  local count = tonumber(oldest[2][4])
  if total - count < most and tonumber(oldest[1]:match('^%d+')) >= first then
    break
  end
  redis.call('XDEL', stream, oldest[1])
  total = total - count
end
redis.call('SET', count_key, total)
for _, key in ipairs({stream, count_key}) do
  if ARGV[6] == '0' then
    redis.call('PERSIST', key)
  else
    redis.call('EXPIRE', key, ARGV[6])
  end
end
return total
