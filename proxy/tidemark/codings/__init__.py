"""Reads bodies piece by piece: undoes codings, looks at openings; compresses and seals what is stored."""
