"""Answers of studies, as sentences, tables, pages and JSON."""
