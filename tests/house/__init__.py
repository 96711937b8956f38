"""House: do imports point one way, and does what is installed work?"""
