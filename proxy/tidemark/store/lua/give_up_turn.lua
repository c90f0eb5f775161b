-- Arguments: hash of the turn's last message, the position before it, own, its lease's name and value. Answer: 1
-- if the turn was not recorded, and a late write of it makes a fork; 2 if it was recorded, and its answer is
-- marked as one that no client received; 0 if neither the turn nor its lease exists.
local lease = key('l', ARGV[4])
if redis.call('GET', lease) == ARGV[5] then
  redis.call('SET', lease, 'void', 'PX', 600000)  -- without an owner: the next turn takes it
  return 1
end
local conv = standing(ARGV[3], N)
if not conv or conv.count ~= N then return 0 end
redis.call('HSET', key('c', conv.own), 'unheard', N)
return 2
