"""Native: is compiled code kept, found again, and equal to its plain functions?"""
