"""Documents: are the words of README, docs and tutorials true?"""
