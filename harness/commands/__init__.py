"""Commands of the command line, one file each; cli.py has those that were there first."""
