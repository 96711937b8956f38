"""One HTML page a study: an answer, tables that sort, pictures drawn in the page, and what they mean.

records  the parts of a page
charts   pictures of numbers as SVG
html     a page as one file that needs no other
"""
