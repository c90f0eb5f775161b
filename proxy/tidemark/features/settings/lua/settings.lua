-- Arguments: prefix; before, after, version. The settings for all models change from "before" to "after", each packed or
-- "" for none. Answer: 0 if they are not "before" any more, and nothing is written. The version is the registry's.
local settings, version = KEYS[1] .. ':s', KEYS[1] .. ':v'
if (redis.call('GET', settings) or '') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', settings)
else
  redis.call('SET', settings, ARGV[2])
end
local epoch = (redis.call('GET', version) or ARGV[3]):match('^[^:]*')
redis.call('SET', version, epoch .. ':' .. ARGV[3])
return 1
