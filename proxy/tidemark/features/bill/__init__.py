"""The bill: what requests cost, what they would have cost uncompacted, and what the summaries cost."""
