-- Arguments: "", 0, own, "standing" or nothing. Answer: all summaries of the conversation, or those of a prefix of
-- it. A summary is stored before its turn; if that is never recorded, the conversation may go on otherwise.
local conv, records = follow(ARGV[3]), {}
local function stands(ref) return conv and hash_at(conv, position(ref)) == ref:sub(5, 20) end
for _, ref in ipairs(redis.call('LRANGE', key('r', conv and conv.own or ARGV[3]), 0, -1)) do
  local record = (not ARGV[4] or stands(ref)) and redis.call('GET', summary(ref))
  if record then records[#records + 1] = record end
end
return records
