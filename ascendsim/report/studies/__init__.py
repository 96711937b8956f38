"""What studies found, as sentences, tables, pages and JSON."""
