"""The audit log: who read, changed or deleted what, in a chain that shows every tampering."""
