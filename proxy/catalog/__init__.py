"""What is known of models: windows, policies, and what people set."""
