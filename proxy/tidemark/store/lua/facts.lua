-- Stands before record.lua and unpacks its many small arguments: one msgpack array, since each argument costs more in
-- transfer than its content. It has no bytes, which the server's reader of msgpack does not know, and times are text,
-- so that they stay as they were written.
local facts = cmsgpack.unpack(ARGV[3])
local answered = {}  -- the last arguments of all: the turn's response, for answered.lua
for i = facts[16], 1, -1 do
  answered[i] = ARGV[#ARGV]
  ARGV[#ARGV] = nil
end
