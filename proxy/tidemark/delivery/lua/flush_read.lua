-- Arguments: group, reader, count, the last id that the reader has (empty for unknown). Answer: the next entries that
-- the group has not received; a new group begins with the oldest. Entries that this reader was sent after that last
-- id come first, because the reply with them was lost.
redis.pcall('XGROUP', 'CREATE', STREAM, ARGV[1], '0', 'MKSTREAM')
local function read(after, count)
  local answer = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', count, 'STREAMS', STREAM, after)
  return answer and answer[1] and answer[1][2] or {}
end
local lost = {}
if ARGV[4] ~= '' then
  for _, entry in ipairs(read(ARGV[4], 1000)) do  -- a page at most
    if entry[2] then
      lost[#lost + 1] = entry
    else
      redis.call('XACK', STREAM, ARGV[1], entry[1])  -- forgotten meanwhile
    end
  end
end
return #lost > 0 and lost or read('>', ARGV[3])
