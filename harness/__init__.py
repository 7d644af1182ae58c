"""Startup reproduction and regression testing of LLM servers."""

__version__ = "0.1.0"
