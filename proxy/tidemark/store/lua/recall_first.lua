-- Stands before the tree in recall.lua, with the same arguments; the fourth is the id of the conversation that a
-- chain of one message begins, or "". Most often nothing of such a chain is stored, and the answer is nil at once.
if ARGV[4] ~= '' then
  local P, own = KEYS[1], ARGV[4]
  if count_existing({P .. ':n:' .. ARGV[1], P .. ':c:' .. own, P .. ':a:' .. own}) == 0 then return false end
end
