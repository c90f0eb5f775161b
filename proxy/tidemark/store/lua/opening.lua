-- Arguments: "", 0, own, how many messages, bytes. Answer: of each of the conversation's first messages its hash and its
-- record; "" in place of a record of more bytes.
local conv, count, most = follow(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local found, last = {}, count
while conv do
  for pos = conv.base + 1, math.min(conv.count, last) do
    local entry = redis.call('LINDEX', key('m', conv.own), pos - conv.base - 1) or ''
    found[2 * pos - 1], found[2 * pos] = hash_at(conv, pos), #entry > most and '' or entry
  end
  last = math.min(last, conv.base)
  conv = open(conv.parent)
end
return found
