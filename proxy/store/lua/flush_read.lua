-- group, reader, count -> the next entries that the group has not been given; a new group begins with the oldest
redis.pcall('XGROUP', 'CREATE', STREAM, ARGV[1], '0', 'MKSTREAM')
local got = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', ARGV[3], 'STREAMS', STREAM, '>')
return got and got[1] and got[1][2] or {}
