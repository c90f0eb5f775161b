-- "", 0, own -> all summaries that apply to the conversation
local conv, records = follow(ARGV[3]), {}
for _, ref in ipairs(redis.call('LRANGE', key('r', conv and conv.own or ARGV[3]), 0, -1)) do
  local record = redis.call('GET', summary(ref))
  if record then records[#records + 1] = record end
end
return records
