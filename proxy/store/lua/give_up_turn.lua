-- hash of its last message, the position before it, own, its lease's name and value -> 1 where the turn was not recorded: a
-- late write of it makes a fork from now on; 2 where it was: its answer is one that nobody got; 0 where neither is known
local lease = key('l', ARGV[4])
if redis.call('GET', lease) == ARGV[5] then
  redis.call('SET', lease, 'void', 'PX', 600000)  -- nobody's: whoever begins a turn takes it
  return 1
end
local conv = standing(ARGV[3], N)
if not conv or conv.count ~= N then return 0 end
redis.call('HSET', key('c', conv.own), 'unheard', N)
return 2
