-- 'd' or 's', first id of a page, its length, conversations... -> the last id of the page, or nil at the end; the
-- entries of these conversations are gone
local stream = ARGV[1] == 'd' and DEAD or STREAM
local gone = {}
for i = 4, #ARGV do gone[ARGV[i]] = true end
local last = false
for _, entry in ipairs(redis.call('XRANGE', stream, ARGV[2], '+', 'COUNT', ARGV[3])) do
  last = entry[1]
  if gone[fields(entry[2]).conversation] then remove(stream, entry[1], entry[2]) end
end
return last
