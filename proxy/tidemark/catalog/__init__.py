"""The catalog of models: windows, policies, and the settings that operators change."""
