-- Arguments: prefix; batch, most batches, seconds that they are stored. Adds a batch of live events where somebody
-- listens; answers its id.
if redis.call('EXISTS', KEYS[1] .. ':l') == 0 then
  return false
end
local stream = KEYS[1] .. ':s'
local id = redis.call('XADD', stream, 'MAXLEN', '~', ARGV[2], '*', 'b', ARGV[1])
redis.call('EXPIRE', stream, ARGV[3])
return id
