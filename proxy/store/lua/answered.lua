-- Stores a response of a conversation: for record.lua, so that both take one round trip, and for keep_response.lua.
-- `answered` is empty, or it has: response id, record, lifetime of what leads there, n, n x (digest, long member),
-- digests of long members that are not sent because the conversation has them. KEYS[2] and following lead to the
-- response from its id and those of its items.
local function keep_answer(own, ttl, answered)  -- '-' where a member is missing, so that all must be sent; else ''
  if #answered == 0 then return '' end
  local call, at, n = redis.call, KEYS[1] .. ':o:' .. own, tonumber(answered[4])
  for i = 5 + 2 * n, #answered do
    if call('HEXISTS', at, answered[i]) == 0 then return '-' end
  end
  for i = 5, 4 + 2 * n, 2 do call('HSETNX', at, answered[i], answered[i + 1]) end
  call('HSET', at, answered[1], answered[2])
  if ttl > 0 then call('EXPIRE', at, ttl) end
  local target, lasting = KEYS[1]:match('{(.-)}') .. own .. answered[1], tonumber(answered[3])
  for i = 2, #KEYS do
    if lasting > 0 then call('SET', KEYS[i], target, 'EX', lasting) else call('SET', KEYS[i], target) end
  end
  return ''
end
