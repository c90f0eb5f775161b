-- group, id, reason, attempts, most entries, most bytes, then the entry as the group was given it -> 1; 0 where it is in
-- the queue no more, and is no letter. The second time, when it is not pending any more, nothing happens
local group, id = ARGV[1], ARGV[2]
local entry = {'consumer', group, 'reason', ARGV[3], 'attempts', ARGV[4], 'died', redis.call('TIME')[1]}
for i = 7, #ARGV do entry[#entry + 1] = ARGV[i] end
local there = #redis.call('XRANGE', STREAM, id, id)
if there == 1 and #redis.call('XPENDING', STREAM, group, id, id, 1) > 0 then
  append(DEAD, entry, tonumber(ARGV[5]), tonumber(ARGV[6]))
  redis.call('HINCRBY', COUNTS, 'dead:' .. group, 1)
end
redis.call('XACK', STREAM, group, id)  -- after it: a script that fails midway takes nothing back
redis.call('HDEL', P .. ':a:' .. group, id)
return there
