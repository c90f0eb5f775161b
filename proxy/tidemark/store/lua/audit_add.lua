-- Arguments: prefix; head and id of the last entry that the writer knows; id, text and signature of the new entry, the
-- new head, and how many entries stay (0: all). Adds the entry if the writer knows the newest one, and answers nothing;
-- else answers the head, the last entry with its id, and the highest id that the stream ever had if that forbids the new
-- one: somebody deleted entries and set the head back. A store that takes no writes refuses in its own words.
local stream, head = KEYS[1] .. ':s', redis.call('GET', KEYS[1] .. ':h') or ''
local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
if head ~= ARGV[1] or (last and last[1] or '') ~= ARGV[2] then
  return {head, last or {}, ''}
end
local added = redis.pcall('XADD', stream, ARGV[3], 'e', ARGV[4], 's', ARGV[5])
if type(added) == 'table' then
  if not added.err:find('XADD', 1, true) then return added end
  local facts = redis.call('XINFO', 'STREAM', stream)
  for place = 1, #facts, 2 do
    if facts[place] == 'last-generated-id' then
      return {head, last or {}, facts[place + 1]}
    end
  end
end
redis.call('SET', KEYS[1] .. ':h', ARGV[6])
if ARGV[7] ~= '0' then
  redis.call('XTRIM', stream, 'MAXLEN', '=', ARGV[7])
end
return false
