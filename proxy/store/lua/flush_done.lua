-- group, id, what it counts as ('done', '' for nothing)
redis.call('XACK', STREAM, ARGV[1], ARGV[2])
redis.call('HDEL', P .. ':a:' .. ARGV[1], ARGV[2])
if ARGV[3] ~= '' then redis.call('HINCRBY', COUNTS, ARGV[3] .. ':' .. ARGV[1], 1) end
