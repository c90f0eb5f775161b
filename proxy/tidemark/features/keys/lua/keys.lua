-- Arguments: prefix; id, before, after, version, expected version. A key's record changes from "before" to "after",
-- each packed or "" for none. Answer: 0 if it is not "before" any more, or if the registry has another version than the
-- expected one, which "-" leaves open; nothing is written then.
local records, version = KEYS[1] .. ':a', KEYS[1] .. ':v'
local stands = redis.call('GET', version) or ''
if (redis.call('HGET', records, ARGV[1]) or '') ~= ARGV[2] then return 0 end
if ARGV[5] ~= '-' and stands ~= ARGV[5] then return 0 end
if ARGV[3] == '' then
  redis.call('HDEL', records, ARGV[1])
else
  redis.call('HSET', records, ARGV[1], ARGV[3])
end
local epoch = (stands == '' and ARGV[4] or stands):match('^[^:]*')
redis.call('SET', version, epoch .. ':' .. ARGV[4])
return 1
