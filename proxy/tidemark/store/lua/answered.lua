-- Stores a response of a conversation: for record.lua, so that both take one round trip, and for keep_response.lua.
-- `answered` is empty, or it has: response id, record, lifetime of what leads there, n, who asked, lifetime of what says
-- so, n x (digest, long member), digests of long members that are not sent because the conversation has them. KEYS[2] and
-- following lead to the response from its id and those of its items; those that begin with tm:own: say whose these are.
local function keep_answer(own, ttl, answered)  -- '-' if a member is missing, so that all must be sent; else ''
  if #answered == 0 then return '' end
  local call, at, n = redis.call, KEYS[1] .. ':o:' .. own, tonumber(answered[4])
  for i = 7 + 2 * n, #answered do
    if call('HEXISTS', at, answered[i]) == 0 then return '-' end
  end
  for i = 7, 6 + 2 * n, 2 do call('HSETNX', at, answered[i], answered[i + 1]) end
  call('HSET', at, answered[1], answered[2])
  if ttl > 0 then call('EXPIRE', at, ttl) end
  local target, lasting = KEYS[1]:match('{(.-)}') .. own .. answered[1], tonumber(answered[3])
  for i = 2, #KEYS do
    local value, seconds = target, lasting
    if KEYS[i]:sub(1, 7) == 'tm:own:' then value, seconds = answered[5], tonumber(answered[6]) end
    if seconds > 0 then call('SET', KEYS[i], value, 'EX', seconds) else call('SET', KEYS[i], value) end
  end
  return ''
end
