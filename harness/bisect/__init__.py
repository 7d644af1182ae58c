"""The first bad build of a range, seen through the other bugs in it."""
