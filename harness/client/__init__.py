"""The harness as a client of the server: all HTTP to servers, with explicit connect and read deadlines.

Nothing is imported here: validation needs only the types of `answers`, and requests is for those who run something.
"""
