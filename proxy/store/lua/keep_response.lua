-- Arguments: "", 0, own, ttl, response id, record, n, n x (digest, long member), digests of long members that are not
-- sent because the conversation has them. Answer: 1; 0 where the conversation is gone; -1 where a member is missing,
-- so that all must be sent. A response lives as long as its conversation.
local own, ttl, id, record, n = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], tonumber(ARGV[7])
if not open(own) then return 0 end
local at = key('o', own)
for i = 8 + 2 * n, #ARGV do
  if call('HEXISTS', at, ARGV[i]) == 0 then return -1 end
end
for i = 8, 7 + 2 * n, 2 do call('HSETNX', at, ARGV[i], ARGV[i + 1]) end
call('HSET', at, id, record)
ttl = span(own, ttl)
if ttl > 0 then call('EXPIRE', at, ttl) end
return 1
