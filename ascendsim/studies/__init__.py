"""Questions asked of many calls at once; each answers with frozen records."""
