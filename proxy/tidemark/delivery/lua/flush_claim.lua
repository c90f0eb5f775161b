-- Arguments: group, reader, idle milliseconds, cursor, count. Answer: cursor, entries that other readers have had for
-- so long. Readers of the group without entries that are idle for a day are removed.
redis.pcall('XGROUP', 'CREATE', STREAM, ARGV[1], '0', 'MKSTREAM')
local claimed = redis.call('XAUTOCLAIM', STREAM, ARGV[1], ARGV[2], ARGV[3], ARGV[4], 'COUNT', ARGV[5])
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', STREAM, ARGV[1])) do
  local reader = fields(flat)
  if reader.pending == 0 and reader.idle > 86400000 then
    redis.call('XGROUP', 'DELCONSUMER', STREAM, ARGV[1], reader.name)
  end
end
local entries = {}
for _, entry in ipairs(claimed[2]) do
  if entry and entry[2] then entries[#entries + 1] = entry end
end
return {claimed[1], entries}
