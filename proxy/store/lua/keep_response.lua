-- Arguments: KEYS[2] and following: what leads to the response from its id and those of its items; own, ttl, response
-- id, record, target and lifetime of what leads there, n, n x (digest, long member), digests of long members that are
-- not sent because the conversation has them. Answer: 1; 0 where the conversation is gone; -1 where a member is
-- missing, so that all must be sent. A response lives as long as its conversation.
local call, own, ttl = redis.call, ARGV[1], tonumber(ARGV[2])
local lasting, n = tonumber(ARGV[6]), tonumber(ARGV[7])
local c = call('HMGET', KEYS[1] .. ':c:' .. own, 'base', 'stem', 'dies')
if not c[1] or c[2] then return 0 end
local at = KEYS[1] .. ':o:' .. own
for i = 8 + 2 * n, #ARGV do
  if call('HEXISTS', at, ARGV[i]) == 0 then return -1 end
end
for i = 8, 7 + 2 * n, 2 do call('HSETNX', at, ARGV[i], ARGV[i + 1]) end
call('HSET', at, ARGV[3], ARGV[4])
if c[3] then
  local remaining = math.max(1, math.ceil(tonumber(c[3]) - tonumber(call('TIME')[1])))
  ttl = ttl > 0 and math.min(ttl, remaining) or remaining
end
if ttl > 0 then call('EXPIRE', at, ttl) end
for i = 2, #KEYS do
  if lasting > 0 then call('SET', KEYS[i], ARGV[5], 'EX', lasting) else call('SET', KEYS[i], ARGV[5]) end
end
return 1
