-- group, reader, count, the last id that the reader has (empty: it does not say) -> the next entries that the group has
-- not been given; a new group begins with the oldest. What this reader was given after that id comes before: the reply
-- with it was lost
redis.pcall('XGROUP', 'CREATE', STREAM, ARGV[1], '0', 'MKSTREAM')
local function given(after, count)
  local got = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', count, 'STREAMS', STREAM, after)
  return got and got[1] and got[1][2] or {}
end
local lost = {}
if ARGV[4] ~= '' then
  for _, entry in ipairs(given(ARGV[4], 1000)) do  -- a page at most
    if entry[2] then
      lost[#lost + 1] = entry
    else
      redis.call('XACK', STREAM, ARGV[1], entry[1])  -- forgotten meanwhile
    end
  end
end
return #lost > 0 and lost or given('>', ARGV[3])
