"""The engine of studies over many calls: points, their answers, where answers are kept, who computes them.

point    one call to be timed, and the key under which its answer is kept
measure  a point to its answer
behind   what the calls before a point have left in L2
plans    plans as plain values and back
store    answers in a file; the only file that knows SQLite
run      points to answers: kept answers are taken, the rest computed by processes and kept at once
table    points and answers as a table: rows of plain values, CSV, Parquet
"""
