"""The feature ``tenants``: erases all of a tenant, and signs what was done."""
