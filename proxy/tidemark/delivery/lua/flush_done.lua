-- Arguments: group, id, the count to raise ('done', '' for none). The second time nothing happens.
local first = redis.call('XACK', STREAM, ARGV[1], ARGV[2]) == 1
redis.call('HDEL', P .. ':a:' .. ARGV[1], ARGV[2])
if first and ARGV[3] ~= '' then redis.call('HINCRBY', COUNTS, ARGV[3] .. ':' .. ARGV[1], 1) end
