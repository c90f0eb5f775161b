-- Arguments: 'd' or 's', from, to, count. Answer: entries, the newest first if from is later than to.
local stream = ARGV[1] == 'd' and DEAD or STREAM
return redis.call((ARGV[3] == '-' and ARGV[2] ~= '-') and 'XREVRANGE' or 'XRANGE', stream, ARGV[2], ARGV[3], 'COUNT', ARGV[4])
