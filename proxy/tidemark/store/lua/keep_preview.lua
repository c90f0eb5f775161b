-- Arguments: "", 0, own, entry, seconds, most. The entry becomes the conversation's newest preview; of too many the
-- oldest goes. Answer: 1; 0 if the conversation was forgotten meanwhile.
local conv = follow(ARGV[3])
if not conv then return 0 end
local j = key('j', conv.own)
redis.call('LPUSH', j, ARGV[4])
redis.call('LTRIM', j, 0, tonumber(ARGV[6]) - 1)
redis.call('EXPIRE', j, ARGV[5])
return 1
