"""Keys of the application: who may use Tidemark, as which tenant, and for which models."""
