"""Number formats and the conversions between them."""
