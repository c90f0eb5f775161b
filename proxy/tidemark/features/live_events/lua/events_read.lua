-- Arguments: prefix; first id, most batches, seconds that listening lasts. Notes that somebody listens; answers the id of
-- the newest batch and, unless the first id is empty, the batches from it on.
redis.call('SET', KEYS[1] .. ':l', '', 'EX', ARGV[3])
local stream = KEYS[1] .. ':s'
if ARGV[1] == '' then
  local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  return newest[1] and newest[1][1] or '0-0'
end
return redis.call('XRANGE', stream, ARGV[1], '+', 'COUNT', ARGV[2])
