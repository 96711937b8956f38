"""The two-phase interface in the vendor's C spelling, for programs that are carried over call by call.

`ascendsim.aclnn` exports all of it. A call returns a status instead of raising, and writes to an `Out` where
C takes an address; the text of the last error is `aclGetRecentErrMsg()`.
"""
