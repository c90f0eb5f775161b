"""The feature ``tenants``: exports all of a tenant, erases it, and signs what was done."""
