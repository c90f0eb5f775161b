"""The registry of models: windows and thresholds that are shown and set while the server runs."""
