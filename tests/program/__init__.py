"""Program: are waits, loops and capacities right, and is synchronisation sufficient?"""
