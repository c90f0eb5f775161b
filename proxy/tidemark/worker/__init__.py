"""The parts of one worker process, from which features, the server and the commands take what they need."""
