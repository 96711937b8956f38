"""Command: does the command do what it says, and answer every mistake?"""
