-- Arguments: 'd' or 's', first id of a page, its length, conversations... Answer: the last id of the page, or nil at
-- the end. The entries of these conversations are removed.
local stream = ARGV[1] == 'd' and DEAD or STREAM
local forgotten = {}
for i = 4, #ARGV do forgotten[ARGV[i]] = true end
local last = false
for _, entry in ipairs(redis.call('XRANGE', stream, ARGV[2], '+', 'COUNT', ARGV[3])) do
  last = entry[1]
  if forgotten[fields(entry[2]).conversation] then remove(stream, entry[1], entry[2]) end
end
return last
