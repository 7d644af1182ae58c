"""Contracts between the classes of a build, checked in its sources: no GPU, no import, no server.

BUILD ─ fetching ─▶ Sources ─ index ─▶ hierarchy ─▶ rules ─▶ Report ─ accepted ─▶ text, JSON, JUnit
"""
