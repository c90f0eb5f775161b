"""The features: each folder has all of one, and ``app/features.py`` lists those that are served."""
