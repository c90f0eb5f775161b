-- Arguments: prefix; lease, tokens, then for each bound: its name, and 1 if its tokens count. Ends a request, and counts
-- what it took to the day that it ends on.
local prefix, lease, tokens = KEYS[1], ARGV[1], tonumber(ARGV[2])
local day = math.floor(tonumber(redis.call('TIME')[1]) / 86400)
for at = 3, #ARGV, 2 do
  local tail = ARGV[at] == '' and '' or ':' .. ARGV[at]
  redis.call('ZREM', prefix .. ':c' .. tail, lease)
  if ARGV[at + 1] == '1' and tokens > 0 then
    local counted = prefix .. ':t' .. tail
    if tonumber(redis.call('HGET', counted, 'day')) ~= day then
      redis.call('HSET', counted, 'day', day, 'tokens', 0)
    end
    redis.call('HINCRBY', counted, 'tokens', tokens)
    redis.call('EXPIRE', counted, 172800)
  end
end
return 1
