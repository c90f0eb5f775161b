"""Client formats. A dialect translates between the bytes of clients and upstreams and the core's values."""
