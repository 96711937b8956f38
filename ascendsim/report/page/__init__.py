"""One HTML page a study: an answer, tables that sort, pictures drawn in the page, and their meanings.

records  the parts of a page, pictures as data among them
charts   pictures as SVG, by matplotlib
html     a page as one file that needs no other, and small enough to open quickly
"""
