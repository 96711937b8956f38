"""Plans: is a plan legal, obeyed, and the one that the product would choose?"""
