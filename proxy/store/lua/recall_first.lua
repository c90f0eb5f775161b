-- Put before the tree in recall.lua and given the same, and then the id of the conversation that a chain of one message
-- begins, or "". Of such a chain nothing is stored most often, and that is told at once: nil.
if ARGV[4] ~= '' then
  local P, own = KEYS[1], ARGV[4]
  if redis.call('EXISTS', P .. ':n:' .. ARGV[1], P .. ':c:' .. own, P .. ':a:' .. own) == 0 then return false end
end
