-- Stands behind answered.lua. Arguments: own, then those that answered.lua states. Answer: "", or "-" if a member is
-- missing, so that all must be sent; nil if the conversation is gone. A response lives as long as its conversation.
local own = table.remove(ARGV, 1)
local record, at = KEYS[1] .. ':c:' .. own, KEYS[1] .. ':o:' .. own
local c = redis.call('HMGET', record, 'base', 'stem')
if not c[1] or c[2] then return false end
local missing = keep_answer(own, 0, ARGV)
local remaining = redis.call('PTTL', record)
if remaining > 0 then redis.call('PEXPIRE', at, remaining) end
return missing
