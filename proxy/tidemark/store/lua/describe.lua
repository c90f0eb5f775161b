-- Arguments: "", 0, own. Answer: own, {field, value, ...}. An id that leads to another conversation is resolved; a
-- count that is no number is counted anew.
local conv = follow(ARGV[3])
local own = conv and conv.own or ARGV[3]
local record = redis.call('HGETALL', key('c', own))
if conv then record[#record + 1], record[#record + 2] = 'count', tostring(conv.count) end
return {own, record}
