"""One request from its parsed form to its stored turn: one file a step."""
