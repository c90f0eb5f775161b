-- Arguments: group, id. Answer: the number of the attempt that begins; 0 if the entry is in the queue no more: it
-- was forgotten, or made way and was counted as lost then. The group does not receive it again.
local attempts = P .. ':a:' .. ARGV[1]
if #redis.call('XRANGE', STREAM, ARGV[2], ARGV[2]) == 0 then
  redis.call('XACK', STREAM, ARGV[1], ARGV[2])
  redis.call('HDEL', attempts, ARGV[2])
  return 0
end
return redis.call('HINCRBY', attempts, ARGV[2], 1)
