"""Instructions: does each mean, touch and cost what it says?"""
