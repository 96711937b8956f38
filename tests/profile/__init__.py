"""Profile: does every product load, and do bad files say why?"""
