"""Undoes content codings piece by piece: gzip, deflate, Brotli and Zstandard; compresses stored messages."""
