"""Interface: is every rule obeyed, with its status code and in its order?"""
