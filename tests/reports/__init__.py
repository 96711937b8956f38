"""Reports: are tables, pages, traces and plots true to the results?"""
