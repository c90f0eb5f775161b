-- Arguments: group, id, reason, attempts, most entries, most bytes, then the fields of the entry. Answer: 1; 0 if
-- the entry is in the queue no more, and becomes no dead letter. The second time, when it is not pending, nothing
-- happens.
local group, id = ARGV[1], ARGV[2]
local entry = {'consumer', group, 'reason', ARGV[3], 'attempts', ARGV[4], 'died', redis.call('TIME')[1]}
for i = 7, #ARGV do entry[#entry + 1] = ARGV[i] end
local exists = #redis.call('XRANGE', STREAM, id, id)
if exists == 1 and #redis.call('XPENDING', STREAM, group, id, id, 1) > 0 then
  append(DEAD, entry, tonumber(ARGV[5]), tonumber(ARGV[6]))
  redis.call('HINCRBY', COUNTS, 'dead:' .. group, 1)
end
redis.call('XACK', STREAM, group, id)  -- last, because a script that fails midway undoes nothing
redis.call('HDEL', P .. ':a:' .. group, id)
return exists
