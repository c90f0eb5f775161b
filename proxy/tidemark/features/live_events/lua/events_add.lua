-- Arguments: prefix; batch, most batches, seconds that they are stored, most compactions that run, and for each that
-- begins or ends its name and its event, empty at its end. Notes the compactions that run; adds a batch of live events
-- if somebody listens, and answers its id.
local running = KEYS[1] .. ':r'
for place = 5, #ARGV, 2 do
  if ARGV[place + 1] == '' then
    redis.call('HDEL', running, ARGV[place])
  elseif redis.call('HLEN', running) < tonumber(ARGV[4]) then
    redis.call('HSET', running, ARGV[place], ARGV[place + 1])
    redis.call('EXPIRE', running, ARGV[3])
  end
end
if redis.call('EXISTS', KEYS[1] .. ':l') == 0 then
  return false
end
local stream = KEYS[1] .. ':s'
local id = redis.call('XADD', stream, 'MAXLEN', '~', ARGV[2], '*', 'b', ARGV[1])
redis.call('EXPIRE', stream, ARGV[3])
return id
