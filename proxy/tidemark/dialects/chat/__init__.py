"""The dialect of chat completions. Other packages reach it through ``chat/dialect.py`` only."""
