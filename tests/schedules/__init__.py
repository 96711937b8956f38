"""Schedules: does each loop nest make the bits of its order, dealt as the operators deal?"""
