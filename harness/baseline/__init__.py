"""What is normal for a scenario on a class of node, and whether a run is worse.

samples     run record -> times                     pure
judgement   times before -> what is normal          pure
history     the file that keeps the times
"""
