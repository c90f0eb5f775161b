"""Takes out of texts what must not be stored or summarized."""
