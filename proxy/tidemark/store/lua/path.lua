-- Arguments: "", 0, own. Answer: own, base, count, parent, base, count, ... up to the first ancestor.
local path, conv = {}, follow(ARGV[3])
while conv do
  for _, part in ipairs({conv.own, conv.base, conv.count}) do path[#path + 1] = part end
  conv = open(conv.parent)
end
return path
